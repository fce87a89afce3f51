package pagecache

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

func TestPath(t *testing.T) {
	list := []mount{{"/", "/"}, {"/var/lib", "/mnt/a"}, {"/", "/second"}}
	for _, c := range []struct {
		parts string // from the end
		whole bool
		list  []mount
		want  string
		here  bool
	}{
		{"file dir", true, list, "/dir/file", true},
		{"file dir", true, nil, "/dir/file", false},
		{"file dir", false, list, ".../dir/file", false},
		{"x lib var", true, list[1:2], "/mnt/a/x", true},
		{"x libre var", true, list[1:2], "/var/libre/x", false},
		{"x lib var", true, list[1:], "/second/var/lib/x", true},
		{"a\x1b[2J\n\xff", true, list, "/a\x1b[2J\n\xff", true},
	} {
		n := name{parts: strings.Split(c.parts, " "), whole: c.whole}
		got, here := pathOf(&n, c.list)
		assert.Check(t, got == c.want && here == c.here, "%q: %q, %v", c.parts, got, here)
	}
}

// Whatever a name has, it is split without a panic, and into no more than there is.
func FuzzSplitName(f *testing.F) {
	f.Add([]byte("file\x00dir\x00"))
	f.Add([]byte("\x00\x00"))
	f.Add([]byte("no end"))
	f.Fuzz(func(t *testing.T, text []byte) {
		size := 0
		for _, part := range splitName(text) {
			size += len(part)
			assert.Check(t, !strings.Contains(part, "\x00"))
		}
		assert.Check(t, size <= len(text))
	})
}
