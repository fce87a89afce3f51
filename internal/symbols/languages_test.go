package symbols

import (
	"fmt"
	"os/exec"
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
	eachGo(t, "inlined", func(t *testing.T, file, path string) {
		p := start(t, exec.Command(path), "inlined")
		pc := p.addrs["inlined"]
		got := story(patient().User(p.pid, []uint64{pc, pc}), 1) // a return address
		want := fmt.Sprintf("main.leaf main.go:%d < main.middle main.go:%d < main.outer main.go:%d",
			lineOf(t, file, "leaf is here"), lineOf(t, file, "middle calls leaf"), lineOf(t, file, "outer calls middle"))
		assert.Check(t, got == want, "got  %s\nwant %s", got, want)
	})
}
