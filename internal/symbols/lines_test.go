package symbols

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

// patient waits for lines however busy the machine is.
func patient() *Resolver { return New(&Options{Timeout: time.Minute}) }

// lineOf is the number of the line that has a remark.
func lineOf(t *testing.T, file, remark string) int {
	t.Helper()
	f, err := os.Open(file)
	assert.NilError(t, err)
	defer f.Close()
	scan := bufio.NewScanner(f)
	for n := 1; scan.Scan(); n++ {
		if strings.Contains(scan.Text(), remark) {
			return n
		}
	}
	t.Fatalf("%s has no line with %q", file, remark)
	return 0
}

// place writes a place as people do: file, without its directory, and line.
func place(file string, line int) string { return fmt.Sprintf("%s:%d", filepath.Base(file), line) }

// story writes a frame with all that is known of it.
func story(s Stack, i int) string {
	name, _, _ := strings.Cut(s.Frames[i], "+0x")
	if len(s.Sources) == 0 || !s.Sources[i].known() {
		return name
	}
	out := ""
	for _, f := range s.Sources[i].Inlined {
		out += f.Function + " " + place(f.File, f.Line) + " < "
	}
	return out + name + " " + place(s.Sources[i].File, s.Sources[i].Line)
}

const inlinedC = "testdata/inlined.c"

// inlinedStory is what must be told of the address that inlined.c prints.
func inlinedStory(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("leaf inlined.c:%d < middle inlined.c:%d < outer inlined.c:%d",
		lineOf(t, inlinedC, "leaf is here"), lineOf(t, inlinedC, "middle calls leaf"), lineOf(t, inlinedC, "outer calls middle"))
}

func (p *program) story(r *Resolver, name string) string {
	return story(r.User(p.pid, []uint64{p.addrs[name]}), 0)
}

func TestLines(t *testing.T) {
	for name, flags := range map[string][]string{
		"dwarf 5":           {"-gdwarf-5"},
		"dwarf 4":           {"-gdwarf-4"},
		"dwarf 3":           {"-gdwarf-3", "-gstrict-dwarf"},
		"compressed":        {"-g", "-gz=zlib"},
		"static":            {"-g", "-static"},
		"static-pie":        {"-g", "-static-pie", "-fPIE"},
		"no pie":            {"-g", "-no-pie", "-fno-PIE"},
		"function sections": {"-g", "-ffunction-sections"},
		"link time":         {"-g", "-flto"},
	} {
		t.Run(name, func(t *testing.T) {
			path := build(t, "inlined", append([]string{"gcc", "-O2", inlinedC}, flags...)...)
			p := start(t, exec.Command(path), "inlined")
			assert.Check(t, is.Equal(p.story(patient(), "inlined"), inlinedStory(t)))
		})
	}
}

// split moves the debug information of a program into a file of its own.
func split(t *testing.T, path, debug string, extra ...string) {
	t.Helper()
	assert.NilError(t, os.MkdirAll(filepath.Dir(debug), 0o755))
	for _, args := range [][]string{
		append([]string{"--only-keep-debug", path, debug}, extra...),
		{"--strip-all", path},
		{"--add-gnu-debuglink=" + debug, path},
	} {
		text, err := exec.Command("objcopy", args...).CombinedOutput()
		assert.NilError(t, err, "objcopy %v (of binutils): %v\n%s", args, err, text)
	}
}

func TestLinesOfDebugLink(t *testing.T) {
	for name, where := range map[string]string{"beside": "x.debug", "in .debug": ".debug/x.debug"} {
		t.Run(name, func(t *testing.T) {
			path := build(t, "inlined", "gcc", "-O2", "-g", "-Wl,--build-id=none", inlinedC)
			debug := filepath.Join(filepath.Dir(path), where)
			split(t, path, debug, "--compress-debug-sections")
			p := start(t, exec.Command(path), "inlined")
			assert.Check(t, is.Equal(p.story(patient(), "inlined"), inlinedStory(t)))
			// Another file of that name is not believed.
			f, err := os.OpenFile(debug, os.O_APPEND|os.O_WRONLY, 0)
			assert.NilError(t, err)
			f.Write([]byte{0})
			f.Close()
			got := p.story(patient(), "inlined")
			assert.Check(t, got == "[unknown] (inlined", "a debug file with another checksum: got %s", got)
		})
	}
}
