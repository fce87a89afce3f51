package guest

import (
	"encoding/binary"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain"
)

// Requests of include/uapi/linux/nbd.h.
const (
	nbdSetSock       = 0xab00
	nbdSetBlockSize  = 0xab01
	nbdDoIt          = 0xab03
	nbdSetSizeBlocks = 0xab07
	nbdDisconnect    = 0xab08

	nbdRequestMagic = 0x25609513
	nbdReplyMagic   = 0x67446698
	nbdRead         = 0
	nbdDisc         = 2
)

// nbdEnv has the test program serve a disk on its standard input.
const nbdEnv = "TAILCAM_TEST_NBD"

// serveNBD answers each read after a while.
func serveNBD() {
	runtime.LockOSThread()
	comm := []byte("nbd-server\x00")
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&comm[0])), 0, 0, 0); err != nil {
		panic(err)
	}
	var request [28]byte // magic, type, handle, from, length
	for {
		if _, err := io.ReadFull(os.Stdin, request[:]); err != nil || binary.BigEndian.Uint32(request[4:])&0xffff == nbdDisc {
			return
		}
		if magic := binary.BigEndian.Uint32(request[:]); magic != nbdRequestMagic {
			panic(magic)
		}
		reply := make([]byte, 16) // magic, error, handle
		binary.BigEndian.PutUint32(reply, nbdReplyMagic)
		copy(reply[8:], request[8:16])
		if binary.BigEndian.Uint32(request[4:])&0xffff == nbdRead {
			time.Sleep(2 * slowDiskDelay)
			reply = append(reply, make([]byte, binary.BigEndian.Uint32(request[24:]))...)
		}
		if _, err := unix.Write(0, reply); err != nil {
			panic(err)
		}
	}
}

// TestDiskOnServer: a read of a network block device is followed to its server.
func TestDiskOnServer(t *testing.T) {
	inGuest(t)
	loadModules(t, "nbd")
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	assert.NilError(t, err)
	theirs := os.NewFile(uintptr(pair[1]), "nbd")
	startChild(t, theirs, nbdEnv+"=1")
	assert.NilError(t, theirs.Close())
	const disk = "/dev/nbd0"
	dev, err := os.OpenFile(disk, os.O_RDWR, 0)
	assert.NilError(t, err)
	for _, set := range [][2]int{{nbdSetBlockSize, 4096}, {nbdSetSizeBlocks, 8192}, {nbdSetSock, pair[0]}} {
		assert.NilError(t, unix.IoctlSetInt(int(dev.Fd()), uint(set[0]), set[1]))
	}
	ended := make(chan error, 1)
	go func() { ended <- unix.IoctlSetInt(int(dev.Fd()), nbdDoIt, 0) }() // until it is told to
	t.Cleanup(func() {
		assert.Check(t, unix.IoctlSetInt(int(dev.Fd()), nbdDisconnect, 0))
		<-ended
		dev.Close() // only read from
	})
	// The size comes last: see nbd_start_device of drivers/block/nbd.c.
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		size, err := os.ReadFile("/sys/block/nbd0/size")
		assert.NilError(t, err)
		if strings.TrimSpace(string(size)) != "0" {
			break
		}
		assert.Assert(t, time.Now().Before(end), "%s has no server", disk)
	}
	snaps := watchHeld(t)
	startHeld(t, "loop", "", heldEnv+"_DISK="+disk)
	// That it opens the disk may take long as well, for which the kernel reads its partitions.
	r := worst(t, snaps, "loop", func(r *explain.Result) bool { return strings.Contains(r.Verdict, " in pread64: ") })
	t.Logf("%s\nadvice: %s", r.Verdict, r.Advice)
	assert.Check(t, r.Blame.Cause == explain.BlockDevice && r.Blame.By.Name == "nbd0", "%+v", r.Blame)
	assert.Assert(t, len(r.Chain) > 0, "nothing is followed")
	first := &r.Chain[0]
	assert.Check(t, first.Cause == explain.Task && first.By.Comm == "nbd-server" && first.Confidence == explain.Inferred, "%+v", first)
	assert.Check(t, strings.Contains(r.Advice, "nbd0 took that long as its worker waited for nbd-server"))
}
