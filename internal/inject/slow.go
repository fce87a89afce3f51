package inject

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// MaxHold bounds what a [SlowDisk] can be asked for: half of what makes the
// kernel complain about a hung task.
const MaxHold = 60 * time.Second

// stride keeps requests apart, so that no read-ahead of one serves another.
const stride = 1 << 20

// SlowDisk is a loop device over a file in a FUSE file system that answers as
// late as it is told. Reading the device gives a slow block request and an
// uninterruptible sleep; reading a file beside it gives a slow system call.
//
// One call at a time: further ones wait. After a call was cancelled or failed,
// only Close may follow. Whatever happens to this process, the device, the
// mount and the children disappear.
type SlowDisk struct {
	mu     sync.Mutex
	server *child // the file system, in a mount namespace of its own
	reader *child // who is slow
	device string
	file   string // as seen from here
	next   int64  // offset of the next read
	broken error
	closed bool
}

// Slow sets up the slow disk. It needs root, /dev/fuse and a free loop device.
func Slow(ctx context.Context) (*SlowDisk, error) {
	server, err := startChild("slowfs", true)
	if err != nil {
		return nil, err
	}
	d := &SlowDisk{server: server, next: stride}
	if d.reader, err = startChild("reader", false); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	ready, err := server.ask(ctx, message{}, 2*childTimeout)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.device = ready.Device
	d.file = fmt.Sprintf("/proc/%d/root%s", server.proc.Pid, ready.Path)
	return d, nil
}

// Device is the name of the disk, such as loop0.
func (d *SlowDisk) Device() string { return d.device }

// Read makes one block request of 4 KiB take delay. The truth is that of the
// thread which read it, so it holds the request from issue to completion and
// the few ten microseconds around them.
func (d *SlowDisk) Read(ctx context.Context, delay time.Duration) (Truth, error) {
	truth, err := d.slow(ctx, delay, message{
		Path: "/dev/" + d.device, Direct: true, File: diskInode, Comm: CommReader,
	})
	truth.Track = "block"
	truth.Device = d.device
	truth.Detail = "direct read of 4 KiB from a disk that answers late"
	return truth, err
}

// Blocked makes a thread sleep uninterruptibly for delay: it waits for a slow
// block request, and so there is one of that length too.
func (d *SlowDisk) Blocked(ctx context.Context, delay time.Duration) (Truth, error) {
	truth, err := d.slow(ctx, delay, message{
		Path: "/dev/" + d.device, Direct: true, File: diskInode, Comm: CommBlocked,
	})
	truth.Track = "offcpu"
	truth.Device = d.device
	truth.Detail = "uninterruptible sleep until a disk answers"
	return truth, err
}

// Syscall makes a pread64 of a file take delay, with no disk behind it.
func (d *SlowDisk) Syscall(ctx context.Context, delay time.Duration) (Truth, error) {
	truth, err := d.slow(ctx, delay, message{
		Path: d.file, File: fileInode, Comm: CommSyscall,
	})
	truth.Track, truth.Sector = "syscall", 0
	truth.Detail = "pread64 of a file whose file system answers late"
	return truth, err
}

func (d *SlowDisk) slow(ctx context.Context, delay time.Duration, order message) (Truth, error) {
	if delay <= 0 || delay > MaxHold {
		return Truth{}, fmt.Errorf("inject a slow read of %v: must be above 0 and at most %v", delay, MaxHold)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return Truth{}, errors.New("inject a slow read: the slow disk is closed")
	}
	if d.broken != nil {
		return Truth{}, fmt.Errorf("inject a slow read: an earlier one failed: %w", d.broken)
	}
	order.Offset = d.next
	d.next = (d.next + stride) % fileSize
	hold := message{File: order.File, Offset: order.Offset, Hold: uint64(delay)}
	if _, err := d.server.ask(ctx, hold, childTimeout); err != nil {
		d.broken = err
		return Truth{}, err
	}
	read, err := d.reader.ask(ctx, order, delay+childTimeout)
	if err != nil {
		d.broken = err
		return Truth{}, err
	}
	if took := read.End - read.Start; took < uint64(delay) {
		d.broken = fmt.Errorf("the read took %v, not the %v that were asked for", time.Duration(took), delay)
		return Truth{}, d.broken
	}
	return Truth{
		PID: read.PID, TID: read.TID, Comm: order.Comm, StartMono: read.Start, EndMono: read.End,
		Sector: uint64(order.Offset) / 512,
	}, nil
}

// Close takes everything down and waits for it. A read under way is answered
// early. Close may be called more than once, and while a read is cancelled.
func (d *SlowDisk) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	var errs []error
	for _, c := range []*child{d.reader, d.server} {
		if c != nil {
			c.leave()
		}
	}
	for _, c := range []*child{d.reader, d.server} {
		if c != nil {
			errs = append(errs, c.gone())
		}
	}
	return errors.Join(errs...)
}
