package redact

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestPseudonyms(t *testing.T) {
	p := NewPseudonyms(Usual)
	assert.Check(t, is.Equal(p.Name(Commands, "postgres"), "command-1"))
	assert.Check(t, is.Equal(p.Name(Commands, "sh"), "command-2"))
	assert.Check(t, is.Equal(p.Name(Commands, "postgres"), "command-1"))
	assert.Check(t, is.Equal(p.Name(Commands, "command-1"), "command-1"), "a pseudonym is none again")
	assert.Check(t, is.Equal(p.Name(Commands, ""), ""))
	assert.Check(t, is.Equal(p.Name(Files, "/srv/data base"), "file-1"))
	assert.Check(t, is.Equal(p.Name(Functions, "main.run"), "main.run"), "not asked for")
	p.Learn(Users, "annabel")
	for _, c := range []struct{ in, want string }{
		{"", ""}, {"no name", "no name"},
		{"postgres waited for sh.", "command-1 waited for command-2."},
		{"push, shell and postgresql are others", "push, shell and postgresql are others"},
		{"postgres_postgres-sh", "command-1_command-1-command-2"},
		{"open '/srv/data base'", "open 'file-1'"},
		{"/home/bob/x and /home/annabel", "/home/user-2/x and /home/user-1"},
		{"10.0.0.5:5432, fe80::1%eth0, [2001:db8::17]:80, 52:54:00:12:34:56.", "address-1:5432, address-2%eth0, [address-3]:80, address-4."},
		{"inet6:2001:db8::17 again", "inet6:address-3 again"},
		{"std::dead::beef, a::b, 12:30:45, 1.2.3", "std::dead::beef, a::b, 12:30:45, 1.2.3"},
		{"password=hunter22 sh", "password= " + Marker},
		{"bad \xff byte", "bad \uFFFD byte"},
	} {
		assert.Check(t, is.Equal(p.Text(c.in), c.want), "%q", c.in)
	}
	assert.Check(t, is.Equal(p.Symbol("<auth_server::Session>::run: x"), "<auth_server::Session>::run: x"), "no secret in a symbol")
	assert.Check(t, p.Number(Users, 0) == 0 && p.Number(Users, 1000) == 1 && p.Number(Users, 1001) == 2 && p.Number(Users, 1000) == 1)
	s := p.Summary()
	assert.Check(t, s.Replaced[Commands].Names == 2 && s.Replaced[Commands].Times > 5 && s.Secrets == 1, "%+v", s)
	before := *p.Summary()
	p.Quietly(func() { p.Text("postgres password=x"); p.Name(Places, "new") })
	assert.Check(t, is.DeepEqual(*p.Summary(), before), "what is done quietly is not counted")
	assert.Check(t, is.Equal(p.Name(Places, "new"), "place-1"), "but known")

	p = NewPseudonyms([]Kind{Hosts})
	assert.Check(t, is.Equal(p.Name(Commands, "web.prod1"), "web.prod1"))
	assert.Check(t, is.Equal(p.Name(Hosts, "prod1"), "host-1"))
	assert.Check(t, is.Equal(p.Name(Commands, "web.prod1"), "web.host-1"), "a name of another kind loses it, too")
	assert.Check(t, is.Equal(p.Text("/home/bob 10.0.0.5"), "/home/bob 10.0.0.5"))
}

// FuzzPseudonyms: a name that was replaced is no word of any text after that, and the same
// text becomes the same.
func FuzzPseudonyms(f *testing.F) {
	f.Add("postgres", "postgres waited for postgres", "10.0.0.1 ::1 /home/x")
	f.Add("a", "a", "\xff\x00")
	f.Add("--", "-----", ":::::")
	f.Fuzz(func(t *testing.T, name, in, more string) {
		p := NewPseudonyms(Kinds)
		with := p.Name(Commands, name)
		assert.Check(t, with == p.Name(Commands, name))
		p.Name(Files, more)
		out := p.Text(in)
		const ours = "command-1 file-1 address user others " + Marker
		if word := firstWord(name); word == name && len(name) > 0 && !strings.Contains(ours, word) {
			for w := range strings.FieldsFuncSeq(out, func(r rune) bool { return !isWord(r) }) {
				if w == name && !strings.Contains(with, name) {
					assert.Check(t, strings.Contains(more, name), "%q is still in %q, of %q", name, out, in)
				}
			}
		}
		p.Symbol(more)
	})
}
