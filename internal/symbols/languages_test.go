package symbols

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

func TestLinesOfCXX(t *testing.T) {
	const source = "testdata/inlined.cc"
	path := build(t, "inlined", "g++", "-O2", "-g", source)
	p := start(t, exec.Command(path), "inlined")
	want := fmt.Sprintf("outer::Thing::leaf<int> inlined.cc:%d < outer::Thing::method inlined.cc:%d",
		lineOf(t, source, "leaf is here"), lineOf(t, source, "method calls leaf"))
	got := p.story(patient(), "inlined")
	assert.Check(t, got == want, "got  %s\nwant %s", got, want)
}

func TestLinesOfRust(t *testing.T) {
	const source = "testdata/inlined.rs"
	path := build(t, "inlined", "rustc", "-O", "-g", source)
	p := start(t, exec.Command(path), "inlined")
	want := fmt.Sprintf("inlined::inner::Thing::leaf inlined.rs:%d < inlined::inner::outer inlined.rs:%d",
		lineOf(t, source, "leaf is here"), lineOf(t, source, "outer calls leaf"))
	// The old form of mangled names has no angle brackets around a type.
	got := strings.NewReplacer("<inlined", "inlined", "Thing>", "Thing").Replace(p.story(patient(), "inlined"))
	assert.Check(t, got == want, "got  %s\nwant %s", got, want)
}

func TestLinesOfGo(t *testing.T) {
	const source = "testdata/inlined.go.txt"
	text, err := os.ReadFile(source)
	assert.NilError(t, err)
	withC := strings.Replace(string(text), "import (", "// int one(void) { return 1; }\nimport \"C\"\n\nimport (", 1) + "\nvar _ = C.one()\n"
	for name, test := range map[string]struct {
		source string
		cgo    string
		flags  []string
	}{
		"symbols":      {string(text), "0", nil},
		"stripped":     {string(text), "0", []string{"-ldflags=-s -w"}},
		"stripped pie": {string(text), "0", []string{"-ldflags=-s -w", "-buildmode=pie"}},
		"stripped cgo": {withC, "1", []string{"-ldflags=-s -w"}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath("gcc"); test.cgo == "1" && err != nil {
				t.Skipf("needs gcc: %v", err)
			}
			file := filepath.Join(t.TempDir(), "main.go")
			assert.NilError(t, os.WriteFile(file, []byte(test.source), 0o600))
			t.Setenv("CGO_ENABLED", test.cgo)
			out := filepath.Join(t.TempDir(), "inlined")
			args := append(append([]string{"build", "-o", out}, test.flags...), file)
			text, err := exec.Command("go", args...).CombinedOutput()
			assert.NilError(t, err, "%s", text)
			p := start(t, exec.Command(out), "inlined")
			pc := p.addrs["inlined"]
			got := story(patient().User(p.pid, []uint64{pc, pc}), 1) // a return address
			want := fmt.Sprintf("main.leaf main.go:%d < main.middle main.go:%d < main.outer main.go:%d",
				lineOf(t, file, "leaf is here"), lineOf(t, file, "middle calls leaf"), lineOf(t, file, "outer calls middle"))
			assert.Check(t, got == want, "got  %s\nwant %s", got, want)
		})
	}
}
