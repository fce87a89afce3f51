package redact

import (
	"encoding/json"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/rules"
)

func TestText(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"no rule files in this directory", "no rule files in this directory"},
		{"tracker block: this kernel has no tracepoint", "tracker block: this kernel has no tracepoint"},
		{"cannot open: /home/anna/rules.yaml", "cannot open: /home/<user>/rules.yaml"},
		{"sent to https://bob:p@ss:w@collector:4318/v1", "sent to https://<redacted>@collector:4318/v1"},
		{"Authorization: Bearer abc.def", "Authorization: <redacted>"},
		{"said Basic dXNlcjpwYXNz, refused", "said Basic <redacted>, refused"},
		{"password = correct horse battery\nnext", "password = <redacted>\nnext"},
		{"API-Key:x\r\nnext", "API-Key: <redacted>\r\nnext"},
		{`{"db_token": "a\"b", "x": 1}`, `{"db_token": <redacted>`},
		{"otlp.headers=authorization=Bearer x", "otlp.headers= <redacted>"},
		{"has eyJhbGciOi.eyJzdWIi.c2ln in it", "has <redacted> in it"},
		{"key AKIAIOSFODNN7EXAMPLE", "key <redacted>"},
		{"ghp_0123456789abcdef", "<redacted>"},
		{"bob $2y$10$abcdefghijklmnopqrstuv/wxyz", "bob <redacted>"},
		{"-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nafter", "<redacted>\nafter"},
		{"-----BEGIN PRIVATE KEY-----\nMIIE and no end", "<redacted>"},
		{`slow comm="my \" prog" cmdline="a b" pid=7`, `slow comm=<left out> cmdline=<left out> pid=7`},
		{"bad \xff byte", "bad \uFFFD byte"},
	} {
		var r Redactor
		assert.Check(t, is.Equal(r.Text(c.in), c.want), "%q", c.in)
		assert.Check(t, (r.Removed() > 0) == strings.ContainsAny(c.want, "<"), "%q: counted", c.in)
	}
}

// Known secrets are removed from all text, however they are printed.
func TestKnown(t *testing.T) {
	const secret = "a\"b\\c/é <&>\x1b\u202e?"
	var r Redactor
	r.AddCredential("Bearer " + secret)
	r.AddCredential("Basic dXNlcm5hbWU6cGFzc3dvcmQx") // username:password1
	r.AddSetting("x-one=first-value,x-two=second-value")
	for _, in := range []string{secret, "x" + secret + "y", "username", "password1", "dXNlcm5hbWU6cGFzc3dvcmQx", "first-value", "second-value"} {
		for _, out := range []string{r.Known(in), r.Plain(in), r.Text(in)} {
			assert.Check(t, is.Contains(out, Marker), "%q", in)
			assert.Check(t, !strings.Contains(out, in) && !strings.Contains(out, secret), "%q: %q", in, out)
		}
	}
	quoted, err := json.Marshal(map[string]string{"x": secret})
	assert.NilError(t, err)
	assert.Check(t, is.Equal(r.Known(string(quoted)), `{"x":"<redacted> <redacted>"}`)) // word by word

	r.Add("abc")    // too short to be looked for
	r.Add("redact") // would never end
	assert.Check(t, is.Equal(r.Known("abc redact"), "abc redact"))
}

// What is left when something was removed is looked at again, and the end is sure.
func TestKnownJoins(t *testing.T) {
	var r Redactor
	r.Add("secret-1")
	r.Add("ed>tail")
	out := r.Known("secret-1tail")
	assert.Check(t, !strings.Contains(out, "ed>tail") && !strings.Contains(out, "secret-1"), "%q", out)
	r = Redactor{}
	r.Add("ted><red")
	out = r.Known("ted><red" + "ted><red" + strings.Repeat("ted><red", 50))
	assert.Check(t, !strings.Contains(out, "ted><red"), "%q", out)
}

func TestJSON(t *testing.T) {
	var r Redactor
	r.Add("hunter22")
	out, err := r.JSON(map[string]any{
		"name": "x hunter22", "password": "p", "headers": map[string]string{"a": "b"}, "hunter22": 1, "n": uint64(1<<63 + 1),
		"list": []any{"ok", "token=abc", nil, true},
	})
	assert.NilError(t, err)
	assert.Check(t, is.Equal(string(out), `{
  "<redacted>": 1,
  "headers": "<redacted>",
  "list": [
    "ok",
    "token= <redacted>",
    null,
    true
  ],
  "n": 9223372036854775809,
  "name": "x <redacted>",
  "password": "<redacted>"
}
`))
	_, err = r.JSON(func() {})
	assert.Check(t, err != nil)
}

func document(t *testing.T, text string) *yaml.Node {
	t.Helper()
	var n yaml.Node
	assert.NilError(t, yaml.Unmarshal([]byte(text), &n))
	return &n
}

func TestYAML(t *testing.T) {
	const text = `
# the old password was comment-secret
otlp:
  endpoint: https://collector:4318 # comment-secret
  headers: ["authorization=Bearer yaml-secret", x-y=other-secret]
rules:
  - name: a
    when: {comm: [postgres, yaml-secret]}
    actions:
      - run: [/usr/bin/notify, --to, argument-secret]
      - run: /bin/sh argument-secret
  - name: b
    secret_key: |
      block-secret
      more-secret
# comment-secret
`
	var r Redactor
	r.Learn(document(t, text))
	out, err := r.YAML(document(t, text))
	assert.NilError(t, err)
	assert.Check(t, !strings.Contains(string(out), "secret\n") && !strings.Contains(string(out), "-secret"), "%s", out)
	for _, want := range []string{"endpoint: https://collector:4318", "headers: <redacted>", "- postgres, ", "/usr/bin/notify", "name: b"} {
		want = strings.TrimSuffix(strings.TrimPrefix(want, "- "), ", ")
		assert.Check(t, is.Contains(string(out), want))
	}
	assert.Check(t, is.Equal(r.Known("block-secret\nmore-secret\n"), Marker), "a block")
	assert.Check(t, is.Equal(r.Known("other-secret"), Marker), "an entry of a list")
}

// FuzzRedactor: whatever the text and the secret, no form of output has the secret.
func FuzzRedactor(f *testing.F) {
	f.Add("Authorization: Bearer abcdef", "abcdef")
	f.Add("ed>x<red secret-1x", "secret-1")
	f.Add("https://a:b@c /home/x password=y", "ted><red")
	f.Add("key: [a, \"b\\n\"]\n# c\nrun: [x, y]", "n\\\"]")
	f.Add("-----BEGIN KEY-----\n\xff", "\xff\xfe--")
	f.Fuzz(func(t *testing.T, in, secret string) {
		var r Redactor
		r.AddSetting(secret)
		holds := func(out string) bool {
			return !ignored(secret) && strings.Contains(out, secret)
		}
		for _, out := range []string{r.Known(in), r.Plain(in), r.Text(in)} {
			assert.Check(t, !holds(out), "%q has %q", out, secret)
		}
		if out, err := r.JSON(map[string]string{in: in, "x": secret}); err == nil {
			assert.Check(t, !holds(r.Known(string(out))), "%q has %q", out, secret)
		}
		n, errs := rules.ParseDocument("x.yaml", []byte(in))
		if len(errs) > 0 {
			return
		}
		r.Learn(n)
		if out, err := r.YAML(n); err == nil {
			assert.Check(t, !holds(r.Known(string(out))), "%q has %q", out, secret)
		}
	})
}
