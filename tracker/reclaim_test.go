package tracker

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/rules"
)

// A place whose thread is gone is freed; those of living threads are not.
func TestReclaim(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads the kernel side")
	}
	tr, err := New([]rules.Rule{{Name: "r", Track: rules.OffCPU, Threshold: time.Hour}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()

	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	// Not attached: only what is put there stands in the table.
	gone, alive := uint64(dead.Process.Pid), uint64(os.Getpid())
	keys := tr.Maps.TaskKeys
	for _, tid := range []uint64{gone, alive} {
		at := uint32(tid>>3) & (keys.MaxEntries() - 1) // bpf/lib/pending.h, numbered
		var b abi.Bucket
		if err := keys.Lookup(at, &b); err != nil {
			t.Fatal(err)
		}
		b.Key[tid&7] = tid
		if err := keys.Put(at, b); err != nil {
			t.Fatal(err)
		}
	}
	n, err := tr.Reclaim()
	if err != nil || n != 1 {
		t.Fatalf("reclaimed %d, %v; want 1", n, err)
	}
	left, err := tr.PendingKeys(rules.OffCPU)
	if err != nil || !slices.Equal(left, []uint64{alive}) {
		t.Errorf("left %v, %v; want %d alone", left, err, alive)
	}
	c, err := tr.Counters()
	if err != nil || c.Reclaimed != 1 {
		t.Errorf("counted %d, %v; want 1", c.Reclaimed, err)
	}
}
