package guest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/rules"
	"github.com/tailcam/tailcam/tracker"
	"github.com/tailcam/tailcam/tracker/events"
)

// shipped takes a rule that is shipped, for this process and with another threshold.
func shipped(t *testing.T, name string, threshold time.Duration) []rules.Rule {
	t.Helper()
	list, err := rules.Load([]string{"../../../configs/rules.more"}, &rules.LocalMachine{})
	assert.NilError(t, err)
	i := slices.IndexFunc(list, func(r rules.Rule) bool { return r.Name == name })
	assert.Assert(t, i >= 0, "no rule %s is shipped", name)
	r := list[i]
	r.Threshold, r.Timeout, r.Snapshot.Enabled = threshold, 0, false
	r.When = rules.Match{PID: []uint32{uint32(os.Getpid())}, Syscall: r.When.Syscall}
	return []rules.Rule{r}
}

// TestShippedFunctions tries the shipped rules that hook functions of the
// kernel, which not every kernel lets one do.
func TestShippedFunctions(t *testing.T) {
	inGuest(t)
	assert.NilError(t, loopbackUp())
	for _, c := range []struct {
		rule      string
		threshold time.Duration
		provoke   func(t *testing.T)
		check     func(o *events.Outlier) error
	}{
		{"page-fault", time.Nanosecond * 1000, faults, func(o *events.Outlier) error {
			if o.Labels["address"] == nil {
				return errors.New("no address")
			}
			return nil
		}},
		{"fsync-any", time.Microsecond, syncs, func(o *events.Outlier) error {
			if o.Syscall == nil || o.Syscall.Name != "fsync" {
				return fmt.Errorf("of %+v", o.Syscall)
			}
			return nil
		}},
		{"first-byte-addresses", 50 * time.Millisecond, firstByte, func(o *events.Outlier) error {
			if o.Labels["client"] != "127.0.0.1" || o.Labels["server"] != "127.0.0.1" || o.DelayNS < (100*time.Millisecond).Nanoseconds() {
				return fmt.Errorf("after %v", time.Duration(o.DelayNS))
			}
			return nil
		}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			if c.rule == "fsync-any" { // the others take a kprobe instead
				needFunctions(t)
			}
			_, outliers := watch(t, shipped(t, c.rule, c.threshold), &tracker.Options{TrackSelf: true, Buffer: 16 << 20})
			c.provoke(t)
			o := await(t, outliers, c.rule, 0)
			t.Logf("%v, key %v, labels %v", time.Duration(o.DelayNS), o.Key, o.Labels)
			assert.Check(t, c.check(o), "labels %v", o.Labels)
		})
	}
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}

func faults(t *testing.T) {
	t.Helper()
	b, err := unix.Mmap(-1, 0, 4<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	assert.NilError(t, err)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	assert.NilError(t, unix.Munmap(b))
}

func syncs(t *testing.T) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	assert.NilError(t, err)
	defer f.Close()
	_, err = f.Write(make([]byte, 1<<16))
	assert.NilError(t, err)
	assert.NilError(t, f.Sync())
}

// firstByte accepts a connection, and answers it late.
func firstByte(t *testing.T) {
	t.Helper()
	server, err := net.Listen("tcp4", "127.0.0.1:0")
	assert.NilError(t, err)
	defer server.Close()
	client, err := net.Dial("tcp4", server.Addr().String())
	assert.NilError(t, err)
	defer client.Close()
	conn, err := server.Accept()
	assert.NilError(t, err)
	defer conn.Close()
	time.Sleep(100 * time.Millisecond)
	_, err = conn.Write([]byte("x"))
	assert.NilError(t, err)
}
