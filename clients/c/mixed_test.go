package c

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/internal/accounts"
	"github.com/tailcam/tailcam/test/support/activitypeer"
)

// amount is what a piece of work of a kind has to leave in the account of its token.
type amount struct {
	kind, value string
	each        float64
	strays      bool // threads have some of it whatever they work for
}

func amounts() []amount {
	page := float64(os.Getpagesize())
	return []amount{
		{"direct", "block_bytes", 4096, false},
		{"direct", "block_requests", 1, false},
		{"cold", "block_bytes", page, false},
		{"cold", "block_requests", 1, false},
		{"cold", "cache_misses", 1, false},
		{"cold", "evicted_pages", 1, false},
		{"warm", "cache_hits", 1, true},
		{"tcp", "tcp_bytes_sent", 1000, false},
		{"tcp", "tcp_bytes_received", 1000, false},
		{"work", "work_items", float64(runtime.NumCPU()), true},
		{"faults", "faults_minor", 4, true},
		{"evict", "evicts_pages", 1, false},
	}
}

// pauses are the kinds of work that wait, and what for. Each waits for so long at least.
var pauses = map[string]string{"sleep": "blocked_timer_ns", "lock": "blocked_lock_ns"}

const pause = 5_000_000

// TestMixed: 64 threads that change their token every 10 us and hand it over through a queue.
// Each token has work of one kind: what was done is in its account, and in no other.
func TestMixed(t *testing.T) {
	p, program := activitypeer.StartKernel(t, append(accounts.Default(), accounts.Syscalls)...), client(t)
	wrong := "not measured"
	for n := 0; wrong != "" && n < attempts; n++ {
		lines, complaint := run(t, program, p.Path, "mixed", mixedFiles(t))
		assert.Equal(t, complaint, "")
		last := len(lines) - 1
		wrong = exactTogether(lines[:last], lines[last])
		for _, line := range lines[:last] {
			wrong = cmp.Or(wrong, mixedAmounts(line), mixedPauses(line))
		}
		if wrong != "" {
			t.Log(wrong)
		}
	}
	assert.Equal(t, wrong, "")
}

// mixedFiles makes the files that injectors.h wants, which are not in memory.
func mixedFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, pages := range map[string]int{"direct": 1, "cold": 1024, "warm": 1} {
		path := filepath.Join(dir, name)
		assert.NilError(t, os.WriteFile(path, make([]byte, pages*os.Getpagesize()), 0o600))
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		assert.NilError(t, err)
		assert.NilError(t, f.Sync())
		assert.NilError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		assert.NilError(t, f.Close())
	}
	return dir
}

// mixedAmounts tells which amount is not in the account.
func mixedAmounts(a map[string]any) string {
	want, strays := map[string]float64{}, map[string]float64{}
	for _, m := range amounts() {
		want[m.value] += 0
		if m.kind == a["name"] {
			want[m.value] = m.each * a["pieces"].(float64)
		}
		if m.strays {
			strays[m.value] = 16
		}
	}
	for value, want := range want {
		got := a[value].(float64)
		if got < want || got > want*1.01+strays[value] {
			return fmt.Sprintf("%s: %s is %.0f, not %.0f", a["name"], value, got, want)
		}
	}
	return ""
}

// mixedPauses tells which wait is not in the account, or in the wrong one. The program measures
// the waits with those for a CPU.
func mixedPauses(a map[string]any) string {
	for kind, value := range pauses {
		got, least, most := a[value].(float64), 0.0, 0.0
		if kind == a["name"] {
			least, most = pause*a["pieces"].(float64), a["paused_ns"].(float64)
		}
		// Not known are waits of which a switch was kept from every tracer.
		if got < least*0.99-a["unexplained_ns"].(float64) || got > most*1.01 {
			return fmt.Sprintf("%s: %s is %.0f, not %.0f to %.0f", a["name"], value, got, least, most)
		}
	}
	return ""
}
