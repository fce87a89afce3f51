package guest

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
)

// Requests of include/uapi/linux/dm-ioctl.h, and the sizes of its structures.
const (
	dmCreate  = 0xc138fd03
	dmRemove  = 0xc138fd04
	dmSuspend = 0xc138fd06 // without the flag: resume
	dmLoad    = 0xc138fd09

	dmHeader = 312
	dmTarget = 40
)

// mapped is the size of mapped disks, in sectors.
const mapped = 1 << 18

// mapDisk makes a device of so many sectors, of one target of the device mapper.
func mapDisk(t *testing.T, name, target string, sectors uint64, params string) (device string) {
	t.Helper()
	control, err := os.OpenFile("/dev/mapper/control", os.O_RDWR, 0)
	assert.NilError(t, err)
	do := func(request uint, body []byte) (device uint64, err error) {
		b := make([]byte, dmHeader, dmHeader+len(body))
		binary.NativeEndian.PutUint32(b, 4)                               // version
		binary.NativeEndian.PutUint32(b[12:], uint32(dmHeader+len(body))) // data_size
		binary.NativeEndian.PutUint32(b[16:], dmHeader)                   // data_start
		binary.NativeEndian.PutUint32(b[20:], uint32(min(len(body), 1)))  // target_count
		copy(b[48:], "test-"+name)
		b = append(b, body...)
		_, _, e := unix.Syscall(unix.SYS_IOCTL, control.Fd(), uintptr(request), uintptr(unsafe.Pointer(&b[0])))
		if e != 0 {
			err = e
		}
		return binary.NativeEndian.Uint64(b[40:]), err
	}
	number, err := do(dmCreate, nil)
	assert.NilError(t, err)
	t.Cleanup(func() {
		_, err := do(dmRemove, nil)
		assert.Check(t, err)
		control.Close() // nothing was written
	})
	table := make([]byte, dmTarget+(len(params)+8)&^7)
	binary.NativeEndian.PutUint64(table[8:], sectors)
	binary.NativeEndian.PutUint32(table[20:], uint32(len(table)))
	copy(table[24:], target)
	copy(table[dmTarget:], params)
	_, err = do(dmLoad, table)
	assert.NilError(t, err)
	_, err = do(dmSuspend, nil)
	assert.NilError(t, err)
	return fmt.Sprintf("/dev/dm-%d", unix.Minor(number))
}

// TestMappedDisk: a read of a disk of the device mapper is followed to the disk below it; what that
// had not got yet is not laid at its door.
func TestMappedDisk(t *testing.T) {
	inGuest(t)
	loadModules(t, "xts", "ecb", "aes_generic", "dm_crypt", "dm_delay")
	snaps := watchHeld(t)
	const held = 80 // ms
	for target, params := range map[string]string{
		"linear": slowDisk + " 0",
		"crypt":  "aes-xts-plain64 " + strings.Repeat("5a", 32) + " 0 " + slowDisk + " 0",
		"delay":  fmt.Sprintf("%s 0 %d", slowDisk, held),
	} {
		t.Run(target, func(t *testing.T) {
			startHeld(t, target, "", heldEnv+"_DISK="+mapDisk(t, target, target, mapped, params))
			r := worst(t, snaps, target, func(r *explain.Result) bool { return strings.Contains(r.Verdict, " in pread64: ") })
			t.Logf("%s\nadvice: %s", r.Verdict, r.Advice)
			part := func(is func(*explain.Part) bool) *explain.Part {
				i := slices.IndexFunc(r.Parts, func(p explain.Part) bool { return is(&p) })
				assert.Assert(t, i >= 0)
				return &r.Parts[i]
			}
			disk := part(func(p *explain.Part) bool { return p.Cause == explain.BlockDevice })
			assert.Check(t, disk.By.Name == filepath.Base(slowDisk) && disk.NS >= int64(slowDiskDelay)*99/100, "%+v", disk)
			if target == "delay" {
				before := part(func(p *explain.Part) bool { return p.Cause == explain.Timer })
				assert.Check(t, before.NS >= held*9/10*1e6, "%+v", before)
				assert.Check(t, strings.Contains(r.Verdict, "before the work flush_expired_bios was queued"))
			}
		})
	}
}

// TestRaid: a write to a mirror or to an array with parity is followed to the disks below; the
// array's own thread only reads and writes for who waits.
func TestRaid(t *testing.T) {
	inGuest(t)
	loadModules(t, "crc32c_generic", "raid1", "raid456", "dm_raid")
	snaps := watchHeld(t)
	for _, raid := range []struct {
		name, params    string
		disks, capacity int
	}{
		{"raid1", "raid1 2 0 nosync 2", 2, 1},
		{"raid5", "raid5_ls 2 128 nosync 3", 3, 2}, // which reads before it writes
	} {
		t.Run(raid.name, func(t *testing.T) {
			params := raid.params
			for i := range raid.disks {
				at := fmt.Sprintf("%s %d", slowDisk, i*mapped)
				params += " - " + mapDisk(t, fmt.Sprint(raid.name, "-", i), "linear", mapped, at)
			}
			disk := mapDisk(t, raid.name, "raid", uint64(raid.capacity*mapped), params)
			startHeld(t, raid.name, "", heldEnv+"_DISK="+disk)
			r := worst(t, snaps, raid.name, func(r *explain.Result) bool { return strings.Contains(r.Verdict, " in pwrite64: ") })
			t.Logf("%s\nadvice: %s", r.Verdict, r.Advice)
			i := slices.IndexFunc(r.Roots, func(p explain.Part) bool {
				return p.Cause == explain.BlockDevice && p.By.Name == filepath.Base(slowDisk)
			})
			assert.Assert(t, i >= 0, "%+v", r.Roots)
			// The last request is within the wait; one before may have begun earlier.
			assert.Check(t, r.Roots[i].NS >= int64(slowDiskDelay)*9/10, "%+v", r.Roots[i])
		})
	}
}
