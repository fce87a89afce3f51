package text

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func FuzzEscapeJSON(f *testing.F) {
	for _, s := range []string{"", "plain", "a\u202eb", "\u2066\u2069\u200b\ufeff", "\x7f\u0085\u009b", "\U000e0001\U0010ffff", "漢字 é <&>", "\x80\xff", "\ufffd", "\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		plain, err := json.Marshal(s)
		assert.NilError(t, err)
		safe, err := Marshal(map[string]string{"a": s, "b" + s: ""})
		assert.NilError(t, err)
		for _, r := range string(safe) {
			assert.Assert(t, unicode.IsPrint(r), "%q holds %U", safe, r)
		}
		var want string
		assert.NilError(t, json.Unmarshal(plain, &want))
		var got map[string]string
		assert.NilError(t, json.Unmarshal(safe, &got), "%s", safe)
		assert.Check(t, got["a"] == want, "%q became %q", want, got["a"])
		for _, r := range Clean(s) {
			assert.Check(t, unicode.IsPrint(r), "Clean(%q) holds %U", s, r)
		}
	})
}

func TestEscapeJSON(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"a":"b"}`, `{"a":"b"}`},
		{"\"a\u202eb\"", `"a\u202eb"`},
		{"\"\x7f\u009b\"", `"\u007f\u009b"`},
		{"\"\U000e0001\"", `"\udb40\udc01"`},
		{"{\n  \"漢\": 1\n}\n", "{\n  \"漢\": 1\n}\n"},
		{"\"\ufffd\"", "\"\ufffd\""},
	} {
		assert.Check(t, is.Equal(string(EscapeJSON([]byte(c.in))), c.want), "%q", c.in)
	}
}

func TestEncoder(t *testing.T) {
	var out bytes.Buffer
	e := NewEncoder(&out)
	e.SetIndent("", "  ")
	assert.NilError(t, e.Encode(map[string]string{"f": "vector<int>\u202e"}))
	want := "{\n  \"f\": \"vector<int>\\u202e\"\n}\n"
	assert.Check(t, out.String() == want, "%q", out.String())
	out.Reset()
	err := e.Encode(func() {})
	assert.Check(t, err != nil && out.Len() <= 0, "%v, %q", err, out.String())
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"a\x1b[2Jb": `a\x1b[2Jb`, "x\u202ey": `x\u202ey`, "\xff": `\xff`, "\U000e0001": `\U000e0001`, "漢é": "漢é", `a\b`: `a\b`,
	} {
		assert.Check(t, is.Equal(Clean(in), want), "%q", in)
	}
	long := strings.Repeat("a", 1<<16)
	assert.Check(t, Clean(long) == long, "long text changed")
}
