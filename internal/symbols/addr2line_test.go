package symbols

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestAgreesWithAddr2line holds lines and inlined functions against those that
// LLVM finds: for the C library, if its debug package is installed, and for the
// file that TAILCAM_VMLINUX names, of any kernel. (That of binutils 2.40 gives
// code of included files the name of the including one.)
func TestAgreesWithAddr2line(t *testing.T) {
	tool, err := exec.LookPath("llvm-addr2line-19")
	if err != nil {
		t.Skipf("needs llvm-addr2line-19 (apt-get install llvm-19): %v", err)
	}
	files := []string{os.Getenv("TAILCAM_VMLINUX")}
	if found, ok := libcDebug(t); ok {
		files = append(files, found)
	}
	tested := 0
	for _, path := range files {
		if path == "" {
			continue
		}
		tested++
		t.Run(filepath.Base(path), func(t *testing.T) { agrees(t, tool, path) })
	}
	if tested == 0 {
		t.Skip("needs libc6-dbg")
	}
}

// libcDebug is the C library's debug file.
func libcDebug(t *testing.T) (string, bool) {
	t.Helper()
	for _, dir := range []string{"/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64"} {
		f, err := os.Open(filepath.Join(dir, "libc.so.6"))
		if err != nil {
			continue
		}
		defer f.Close()
		e, err := newELF(f)
		assert.NilError(t, err)
		at, ok := debugRef{buildID: buildID(e, f)}.locate(&target{resolver: New(nil), ended: true}, "")
		return at.path, ok
	}
	return "", false
}

func agrees(t *testing.T, tool, path string) {
	f, err := os.Open(path)
	assert.NilError(t, err)
	defer f.Close()
	table := &table{}
	e, err := newELF(f)
	assert.Assert(t, err == nil && fromSymtab(table, e, f, 2, 1<<21), "no symbols: %v", err) // 2: SHT_SYMTAB
	const wanted = 250
	var addrs []uint64
	for i := 0; i < len(table.symbols); i += len(table.symbols)/wanted + 1 {
		if s := table.symbols[i]; s.size > 32 {
			addrs = append(addrs, s.start+uint64(s.size)/2, s.start+uint64(s.size)/4)
		}
	}
	m, err := mapFile(f)
	assert.NilError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	d, err := openDWARF(ctx, m, nil, 1<<30)
	assert.NilError(t, err)
	defer d.close()

	differ, inlined := 0, 0
	theirs := addr2line(t, tool, path, addrs)
	for i, a := range addrs {
		s, err := d.source(ctx, a)
		assert.NilError(t, err)
		var ours []string
		if s != nil && s.known() {
			for _, f := range s.Inlined {
				ours = append(ours, f.Function+" "+place(f.File, f.Line))
			}
			inlined += len(s.Inlined)
			ours = append(ours, place(s.File, s.Line))
		}
		if got, want := strings.Join(ours, " < "), strings.Join(theirs[i], " < "); got != want {
			if differ++; differ < 10 {
				t.Logf("0x%x: got %s, addr2line says %s", a, got, want)
			}
		}
	}
	t.Logf("%d of %d addresses differ, %d inlined functions", differ, len(addrs), inlined)
	assert.Check(t, inlined != 0 && differ*100 <= len(addrs),
		"%d of %d addresses differ, %d inlined functions", differ, len(addrs), inlined)
}

// addr2line returns for each address its places, innermost first, all but the
// last with their function.
func addr2line(t *testing.T, tool, path string, addrs []uint64) [][]string {
	t.Helper()
	var in bytes.Buffer
	for _, a := range addrs {
		fmt.Fprintf(&in, "%x\n", a)
	}
	cmd := exec.Command(tool, "-a", "-f", "-i", "-e", path)
	cmd.Stdin = &in
	out, err := cmd.Output()
	assert.NilError(t, err)
	var list [][]string
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for i := 0; i < len(lines); {
		assert.Assert(t, strings.HasPrefix(lines[i], "0x"), "unexpected %q", lines[i])
		i++
		var chain []string
		for ; i+1 < len(lines) && !strings.HasPrefix(lines[i], "0x"); i += 2 {
			where, _, _ := strings.Cut(lines[i+1], " (")
			colon := strings.LastIndexByte(where, ':')
			n, _ := strconv.Atoi(where[colon+1:])
			chain = append(chain, lines[i]+" "+place(where[:colon], n))
		}
		last := chain[len(chain)-1]
		_, last, _ = strings.Cut(last, " ")
		if chain[len(chain)-1] = last; strings.HasPrefix(last, "??") {
			chain = nil
		}
		list = append(list, chain)
	}
	assert.Assert(t, len(list) == len(addrs), "addr2line told of %d of %d addresses", len(list), len(addrs))
	return list
}
