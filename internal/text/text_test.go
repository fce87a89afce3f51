package text

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

func FuzzEscapeJSON(f *testing.F) {
	for _, s := range []string{"", "plain", "a\u202eb", "\u2066\u2069\u200b\ufeff", "\x7f\u0085\u009b", "\U000e0001\U0010ffff", "漢字 é <&>", "\x80\xff", "\ufffd", "\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		plain, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		safe, err := Marshal(map[string]string{"a": s, "b" + s: ""})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range string(safe) {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q holds %U", safe, r)
			}
		}
		var want string
		if err := json.Unmarshal(plain, &want); err != nil {
			t.Fatal(err)
		}
		var got map[string]string
		if err := json.Unmarshal(safe, &got); err != nil {
			t.Fatalf("%s: %v", safe, err)
		}
		if got["a"] != want {
			t.Errorf("%q became %q", want, got["a"])
		}
		for _, r := range Clean(s) {
			if !unicode.IsPrint(r) {
				t.Errorf("Clean(%q) holds %U", s, r)
			}
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
		if got := string(EscapeJSON([]byte(c.in))); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}

func TestEncoder(t *testing.T) {
	var out bytes.Buffer
	e := NewEncoder(&out)
	e.SetIndent("", "  ")
	if err := e.Encode(map[string]string{"f": "vector<int>\u202e"}); err != nil {
		t.Fatal(err)
	}
	if want := "{\n  \"f\": \"vector<int>\\u202e\"\n}\n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
	out.Reset()
	if err := e.Encode(func() {}); err == nil || out.Len() > 0 {
		t.Errorf("%v, %q", err, out.String())
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"a\x1b[2Jb": `a\x1b[2Jb`, "x\u202ey": `x\u202ey`, "\xff": `\xff`, "\U000e0001": `\U000e0001`, "漢é": "漢é", `a\b`: `a\b`,
	} {
		if got := Clean(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if long := strings.Repeat("a", 1<<16); Clean(long) != long {
		t.Error("long text changed")
	}
}
