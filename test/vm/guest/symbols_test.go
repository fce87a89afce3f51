package guest

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/tailcam/tailcam/internal/symbols"
)

// TestModuleSymbols: addresses of the kernel have their names, and those in
// modules the module's.
func TestModuleSymbols(t *testing.T) {
	inGuest(t)
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	wanted := map[string]string{"schedule": "", "null_queue_rq": " [null_blk]", "lo_release": " [loop]"}
	r := symbols.New(nil)
	found := 0
	for scan := bufio.NewScanner(f); scan.Scan(); {
		fields := strings.Fields(scan.Text())
		module, ok := wanted[fields[2]]
		if !ok {
			continue
		}
		found++
		addr, err := strconv.ParseUint(fields[0], 16, 64)
		if err != nil || addr == 0 {
			t.Fatalf("bad line %q", scan.Text())
		}
		s, err := r.Kernel([]uint64{addr + 3})
		if want := fields[2] + "+0x3" + module; err != nil || s.Frames[0] != want {
			t.Errorf("got %q, %v; want %s", s.Frames, err, want)
		}
	}
	if found != len(wanted) {
		t.Errorf("%d of %d functions are in kallsyms", found, len(wanted))
	}
}
