package inject

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// The part of the FUSE protocol that two read-only files need
// (include/uapi/linux/fuse.h; 7.31 is that of kernel 5.4).
const (
	fuseMajor, fuseMinor = 7, 31

	fuseLookup      = 1
	fuseForget      = 2
	fuseGetattr     = 3
	fuseOpen        = 14
	fuseRead        = 15
	fuseRelease     = 18
	fuseFlush       = 25
	fuseInit        = 26
	fuseInterrupt   = 36
	fuseBatchForget = 42

	fuseRoot      = 1    // the node of the mounted directory
	fuseAsyncRead = 1    // flag of INIT
	fuseDirectIO  = 1    // flag of an opened file: no page cache
	fuseRequest   = 8192 // the largest request that is accepted without writes
)

// fuseIn is struct fuse_in_header.
type fuseIn struct {
	Len, Opcode          uint32
	Unique, Node         uint64
	UID, GID, PID, Extra uint32
}

const (
	fuseInSize  = 40
	fuseOutSize = 16
)

// fuseAttr is struct fuse_attr.
type fuseAttr struct {
	Ino, Size, Blocks, Atime, Mtime, Ctime       uint64
	AtimeNS, MtimeNS, CtimeNS, Mode, Links       uint32
	UID, GID, Device, BlockSize, AttributesFlags uint32
}

// seconds for which the kernel may keep names and attributes.
const fuseValid = uint64(time.Hour / time.Second)

// mount mounts the file system, and serves it from a thread of its own until
// this process ends.
func (fs *slowFS) mount(dir string) error {
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/fuse: %w", err)
	}
	fs.dev = dev
	options := fmt.Sprintf("fd=%d,rootmode=%o,user_id=0,group_id=0", dev, unix.S_IFDIR)
	if err := unix.Mount("tailcam", dir, "fuse."+CommServer, unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return err
	}
	go fs.serve()
	return nil
}

func (fs *slowFS) serve() {
	runtime.LockOSThread() // it is the one that readers wait for
	request := make([]byte, 8*fuseRequest)
	for {
		n, err := unix.Read(fs.dev, request)
		switch {
		case err == nil && n >= fuseInSize:
			fs.handle(request[:n])
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOENT):
			// ENOENT: whoever asked has given up
		default:
			return // unmounted
		}
	}
}

// handle answers one request.
func (fs *slowFS) handle(request []byte) {
	var in fuseIn
	if _, err := binary.Decode(request, binary.NativeEndian, &in); err != nil {
		return
	}
	body := request[fuseInSize:]
	switch in.Opcode {
	case fuseForget, fuseBatchForget, fuseInterrupt: // have no answer
	case fuseInit:
		// major, minor, max_readahead, flags: no read-ahead, so that each read is one request
		fs.answer(&in, 0, []uint32{fuseMajor, fuseMinor, 0, fuseAsyncRead, 0, fuseRequest / 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	case fuseLookup:
		inode := lookup(in.Node, body)
		if inode == 0 {
			fs.answer(&in, unix.ENOENT, nil)
			return
		}
		fs.answer(&in, 0, struct {
			Node, Generation, NodeValid, AttrValid uint64
			_                                      [2]uint32
			Attr                                   fuseAttr
		}{Node: inode, NodeValid: fuseValid, AttrValid: fuseValid, Attr: attributes(inode)})
	case fuseGetattr:
		fs.answer(&in, 0, struct {
			Valid uint64
			_     [2]uint32
			Attr  fuseAttr
		}{Valid: fuseValid, Attr: attributes(in.Node)})
	case fuseOpen:
		// The plain file bypasses the page cache, so that a system call waits
		// for this process and not for a page.
		var open struct {
			Handle   uint64
			Flags, _ uint32
		}
		if in.Node == fileInode {
			open.Flags = fuseDirectIO
		}
		fs.answer(&in, 0, open)
	case fuseRead:
		if len(body) < 24 {
			fs.answer(&in, unix.EIO, nil)
			return
		}
		offset := int64(binary.NativeEndian.Uint64(body[8:]))
		n := min(int64(binary.NativeEndian.Uint32(body[16:])), max(0, fileSize-offset))
		fs.hold(in.Node, offset, n)
		fs.answer(&in, 0, make([]byte, n))
	case fuseRelease, fuseFlush:
		fs.answer(&in, 0, nil)
	default:
		fs.answer(&in, unix.ENOSYS, nil)
	}
}

// answer sends struct fuse_out_header, and what follows it.
func (fs *slowFS) answer(in *fuseIn, errno unix.Errno, body any) {
	size := 0
	if body != nil {
		size = binary.Size(body)
	}
	b := make([]byte, 0, fuseOutSize+size)
	b = binary.NativeEndian.AppendUint32(b, uint32(fuseOutSize+size))
	b = binary.NativeEndian.AppendUint32(b, uint32(-int32(errno)))
	b = binary.NativeEndian.AppendUint64(b, in.Unique)
	if body != nil {
		b, _ = binary.Append(b, binary.NativeEndian, body) // its size was known
	}
	_, _ = unix.Write(fs.dev, b) // whoever asked may have given up
}

func attributes(inode uint64) fuseAttr {
	a := fuseAttr{Ino: inode, Size: fileSize, Links: 1, Mode: unix.S_IFREG | 0o400}
	if inode == fuseRoot {
		a.Size, a.Mode = 0, unix.S_IFDIR|0o500
	}
	return a
}
