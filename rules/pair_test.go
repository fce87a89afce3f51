package rules

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// pairRule is a rule of track pair in one line, with more of it.
func pairRule(more string) string {
	return "rules: [{name: a, track: pair, threshold: 1ms, " + more + "}]"
}

const goodPair = "entry: raw_tracepoint:a, exit: raw_tracepoint:b, key: tid"

var badPairs = []struct{ yaml, want string }{
	{pairRule("key: tid"), "f:1:9: rule has no entry; allowed: rules of track pair with entry, exit and key\n" +
		"f:1:9: rule has no exit; allowed: rules of track pair with entry, exit and key"},
	{pairRule("entry: a, exit: tracepont:b, key: [tid]"), `f:1:55: entry: unknown kind of hook "a"; allowed: ` + hookAllowed +
		"\n" + `f:1:64: exit: unknown kind of hook "tracepont", did you mean "tracepoint"; allowed: ` + hookAllowed},
	{pairRule("entry: 'tracepoint:sched', exit: 'uprobe:bin/sh:main', key: tid"), `f:1:55: entry: incomplete hook "tracepoint:sched"; allowed: ` + hookAllowed +
		"\n" + `f:1:81: exit: "bin/sh" is not an absolute path; allowed: ` + hookAllowed},
	{pairRule("entry: [], exit: 'kprobe:a b', key: []"), "f:1:55: entry has 0 hooks; allowed: 1 to 16 hooks\n" +
		`f:1:65: exit: invalid kernel name "a b"; allowed: ` + hookAllowed + "\nf:1:84: key has 0 parts; allowed: 1 to 3 parts"},
	{pairRule("entry: [raw_tracepoint:a, raw_tracepoint:a], exit: raw_tracepoint:b, key: tid"),
		"f:1:74: duplicate hook raw_tracepoint:a; allowed: each hook once"},
	{pairRule("entry: {key: tid}, exit: raw_tracepoint:b, key: tid"), "f:1:55: entry has a mapping without hook; allowed: " + hookAllowed},
	{pairRule("entry: {hook: raw_tracepoint:a, key: [tid, cpu]}, exit: raw_tracepoint:b, key: tid"), "f:1:85: key has 2 parts; allowed: 1, like the rule's key"},
	{pairRule("entry: raw_tracepoint:a, exit: raw_tracepoint:b, key: [tid, cpu, pid, uid]"), "f:1:102: key has 4 parts; allowed: 1 to 3 parts"},
	{pairRule("entry: raw_tracepoint:a, exit: raw_tracepoint:b, key: [args.fd, args.x->fd]"),
		"f:1:112: duplicate key part fd; allowed: a unique name for each part: {name: N, entry: FIELD, exit: FIELD}"},
	{pairRule("entry: raw_tracepoint:a, exit: raw_tracepoint:b, key: {entry: tid}"),
		"f:1:102: key part has no exit; allowed: entry, exit and optionally cancel, each with a field"},
	{pairRule("entry: raw_tracepoint:a, exit: raw_tracepoint:b, key: fd"), `f:1:102: key: invalid field "fd": unknown base "fd"; allowed: ` + fieldAllowed},
	{pairRule("entry: raw_tracepoint:a, exit: raw_tracepoint:b, key: 'args.a>b'"), `f:1:102: key: invalid field "args.a>b": unexpected ">b": must be ->, . or [; allowed: ` + fieldAllowed},
	{pairRule("entry: raw_tracepoint:a, exit: raw_tracepoint:b, key: tid->x"), `f:1:102: key: invalid field "tid->x": tid is a number and has no members; allowed: ` + fieldAllowed},
	{pairRule(goodPair + ", on_duplicate: ignore"), `f:1:121: unknown on_duplicate "ignore"; allowed: restart, keep, count`},
	{pairRule(goodPair + ", entry_when: args.x = 2"), `f:1:119: entry_when: invalid condition "args.x = 2": unknown operator "="; allowed: FIELD OPERATOR NUMBER, operators ==, !=, <, <=, >, >=, &`},
	{pairRule(goodPair + ", exit_when: [args.x == two, args.x]"), `f:1:119: exit_when: invalid condition "args.x == two": "two" is not an integer; allowed: FIELD OPERATOR NUMBER, operators ==, !=, <, <=, >, >=, &` +
		"\n" + `f:1:134: exit_when: invalid condition "args.x": missing operator; allowed: FIELD OPERATOR NUMBER, operators ==, !=, <, <=, >, >=, &`},
	{pairRule(goodPair + ", exit_when: [a, b, c, d, e]"), "f:1:118: exit_when has 5 conditions; allowed: at most 4"},
	{pairRule(goodPair + ", labels: args.x"), "f:1:115: labels is a string; allowed: a mapping of names to fields, such as bytes: args.len"},
	{pairRule(goodPair + ", labels: {a-b: tid, a: tid, a: pid}"), "f:1:116: invalid name \"a-b\"; allowed: a-z, A-Z, 0-9 and _, at most 32 characters\n" +
		"f:1:134: duplicate label a; allowed: each name once"},
	{pairRule(goodPair + ", labels: {a: tid, b: tid, c: tid, d: tid, e: tid}"), "f:1:115: labels has 5 names; allowed: at most 4"},
	{pairRule(goodPair + ", labels: {a: {field: args.x, as: ip}}"), `f:1:139: unknown as "ip"; allowed: number, hex, ipv4, ipv6, port, dev, string, symbol`},
	{pairRule(goodPair + ", stacks: [waker]"), "f:1:115: track pair has no waker stack; allowed: waker with track wakeup, offcpu"},
	{pairRule(goodPair + ", when: {device: vda}"), "f:1:114: device does not apply to track pair; allowed: track block"},
	{pairRule(goodPair + ", activity: a"), "f:1:117: an activity does not begin or end at raw_tracepoint:a; allowed: uprobe, uretprobe, usdt\n" +
		"f:1:117: an activity does not begin or end at raw_tracepoint:b; allowed: uprobe, uretprobe, usdt"},
	{pairRule("entry: 'uprobe:/a:b', exit: 'uretprobe:/a:b', key: arg0, activity: a b"),
		`f:1:115: invalid activity "a b"; allowed: 1 to 31 ASCII characters without blanks`},
	{pairRule("entry: 'uprobe:/a:b', exit: 'uretprobe:/a:b', key: arg0, activity: a"),
		"f:1:115: the thread that begins an activity ends it, which the key of the rule does not say; allowed: key: [tid]"},
	{rule("wakeup", "entry: raw_tracepoint:a"), "f:1:50: entry does not apply to track wakeup; allowed: track pair"},
}

func TestBadPairs(t *testing.T) {
	for _, c := range badPairs {
		_, err := Parse("f", []byte(c.yaml), &LocalMachine{})
		if err == nil {
			t.Errorf("%q: no error, want\n%s", c.yaml, c.want)
		} else if got := err.Error(); got != c.want {
			t.Errorf("%q:\ngot\n%s\nwant\n%s", c.yaml, got, c.want)
		}
	}
}

func TestGoodPair(t *testing.T) {
	list, err := Parse("f", []byte(pairRule(`
  entry: [tracepoint:syscalls:sys_exit_accept4, {hook: 'kprobe:f+0x10', key: [tid, arg1], when: arg0 != 0}],
  exit: 'uprobe:/usr/bin/a:b:main+16', cancel: 'usdt:/bin/x:prov:name',
  key: [pid, {name: fd, entry: args.ret, exit: '(struct file)arg0->f_inode.i_ino', cancel: 'arg0->16:u32'}],
  on_duplicate: count, entry_when: ['args.ret >= 0', 'args.rq->cmd_flags & 0xff'], exit_when: ret < -1,
  labels: {a: 'args.v[2]', b: {field: exit.ret, as: hex}}`)), &LocalMachine{})
	assert.NilError(t, err)
	p := list[0].Pair
	assert.Assert(t, p != nil && len(p.Entry) == 2 && len(p.Exit) == 1 && len(p.Cancel) == 1 && len(p.Key) == 2 &&
		len(p.Labels) == 2, "got %+v", p)
	h := p.Exit[0]
	assert.Check(t, h.Path == "/usr/bin/a:b" && h.Name == "main" && h.Offset == 16, "uprobe is %+v", h)
	h = p.Cancel[0]
	assert.Check(t, h.Path == "/bin/x" && h.Category == "prov" && h.Name == "name", "usdt is %+v", h)
	h = p.Entry[1]
	assert.Check(t, h.Offset == 16 && len(h.Key) == 2 && len(h.When) == 1 && h.When[0].Op == "!=",
		"kprobe is %+v", h)
	k := p.Key[1]
	assert.Check(t, k.Name == "fd" && k.Exit.Cast == "file" && len(k.Exit.Steps) == 2 && k.Cancel.Type == "u32" &&
		k.Cancel.Steps[0].Offset == 16, "key is %+v", k)
	w := p.EntryWhen[1]
	assert.Check(t, w.Op == "&" && w.Value == 255 && w.Field.Name == "rq", "condition is %+v", w)
	w = p.ExitWhen[0]
	assert.Check(t, w.Op == "<" && w.Value == -1, "condition is %+v", w)
	assert.Check(t, p.Labels[1].AtExit && p.Labels[1].Field.Base == BaseReturn &&
		p.Labels[0].Field.Steps[0].Index == 2, "labels are %+v", p.Labels)
}

// FuzzField proves that any text is read or refused, and that what was read means the same again.
func FuzzField(f *testing.F) {
	for _, s := range []string{"tid", "args.rq->q->disk->major", "(struct sock)arg1->sk_num", "args.a[3].b", "arg0->16:u32", "ret", "args."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		field, err := ParseField(s)
		if err != nil {
			return
		}
		assert.Check(t, len(field.Steps) <= maxSteps && field.Base != "" && field.Number <= 11 && field.Number >= 0,
			"%q was read as %+v", s, field)
		assert.Check(t, field.Base != BaseArgument || field.Name != "" && strings.Contains(s, field.Name),
			"%q was read as %+v", s, field)
	})
}

// FuzzCompare is the same for comparisons and hooks.
func FuzzCompare(f *testing.F) {
	for _, s := range []string{"args.x == 2", "ret >= -1", "args.a->b & 0xff", "uprobe:/bin/sh:main+16", "usdt:/x:a:b", "kprobe:f+1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseCompare(s)
		assert.Check(t, err != nil || contains(operatorNames(), string(c.Op)), "%q was read as %+v", s, c)
		h, err := ParseHook(s)
		assert.Check(t, err != nil || h.Name != "", "%q was read as %+v", s, h)
	})
}
