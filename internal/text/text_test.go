package text

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
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

// What YAML makes of JSON decodes to the same, and has nothing that is not printable.
func FuzzYAML(f *testing.F) {
	for _, s := range []string{
		`{}`, `[]`, `{"a":null,"b":[1,-2.5e-07,true,"x"],"c":{"":[[]]}}`, `"\udb40\udc01\u202e\u0085\u2028\ufeff"`, `{"yes":"no","1:30":"12:30","~":"null"}`,
		`18446744073709551615`, `{"a":"- b","c":"# d","e":"x: y","f":"0x1f","g":"a\nb","h":" i ","*j":"&k"}`, `[`, `{"a":1}2`, `{"a":}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var want any
		valid := json.Unmarshal(data, &want) == nil
		_, err := YAML(data)
		assert.Assert(t, !valid || err == nil, "%q: %v", data, err)
		if !valid {
			return
		}
		data, err = json.Marshal(want) // each key once
		assert.NilError(t, err)
		out, err := YAML(data)
		assert.NilError(t, err)
		for _, r := range string(out) {
			assert.Assert(t, r == '\n' || r == utf8.RuneError || unicode.IsPrint(r), "%q holds %U", out, r)
		}
		var v any
		assert.NilError(t, yaml.Unmarshal(out, &v), "%q became %q", data, out)
		back, err := json.Marshal(v)
		if err != nil {
			return // a number that no float can hold
		}
		var got any
		assert.NilError(t, json.Unmarshal(back, &got))
		assert.Check(t, is.DeepEqual(want, got), "%q became %q", data, out)
	})
}

func TestYAML(t *testing.T) {
	out, err := YAML([]byte(`{"schema":"tailcam/x/v1","comm":"yes","at":"12:30","ns":5,"f":1e-07,"s":"a\u202eb","x":"\udb40\udc01","n":null,"l":[{"a":true,"b":[]},{}]}`))
	assert.NilError(t, err)
	assert.Check(t, is.Equal(string(out), `---
schema: tailcam/x/v1
comm: "yes"
at: "12:30"
ns: 5
f: 1.0e-07
s: "a\u202eb"
x: "\U000E0001"
"n": null
l:
  - a: true
    b: []
  - {}
`))
	_, err = YAML([]byte(`{} {}`))
	assert.ErrorContains(t, err, "data after the JSON value")
	_, err = YAML([]byte(`{"a"`))
	assert.Check(t, err != nil)
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
