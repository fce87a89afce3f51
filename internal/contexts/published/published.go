// Package published reads what a process publishes of itself for others: OpenTelemetry's
// process context (OTEP 4719), as far as the contexts of threads (OTEP 4947) need it. It
// runs in helpers: all that it reads is the process's word.
package published

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tailcam/tailcam/internal/process"
	"github.com/tailcam/tailcam/internal/symbols"
)

// Limits of what is read.
const (
	maxMappings = 8        // that have its name
	maxPayload  = 64 << 10 // bytes
	maxReads    = 4        // while it is being written
	betweenTwo  = time.Millisecond
)

var (
	// ErrNone means that a process publishes nothing that can be read.
	ErrNone    = errors.New("it publishes no process context")
	errExeced  = errors.New("it has another program by now")
	errWritten = errors.New("its process context is being written")
)

// Keys returns the names of the attributes in the contexts of a process's threads, by their
// numbers, and the program that has published them. It may hang, as process.Read may.
func Keys(pid int) (keys []string, image process.Image, err error) {
	_, image, err = process.Words(pid)
	if err != nil {
		return nil, image, err
	}
	payload, err := read(pid)
	if err != nil {
		return nil, image, err
	}
	if _, after, err := process.Words(pid); err != nil || after != image {
		return nil, image, errors.Join(err, errExeced)
	}
	keys, err = Parse(payload)
	return keys, image, err
}

// isContext reports whether a mapping may be the one of a process context.
func isContext(name string) bool {
	for _, prefix := range []string{"/memfd:OTEL_CTX", "[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// read returns the payload.
func read(pid int) ([]byte, error) {
	maps, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "maps"))
	if err != nil {
		return nil, err
	}
	defer maps.Close()
	starts, err := symbols.MappingsNamed(maps, maxMappings, isContext)
	if err != nil {
		return nil, fmt.Errorf("look for its process context: %w", err)
	}
	err = ErrNone
	for _, at := range starts {
		payload, failed := readAt(pid, at)
		if failed == nil {
			return payload, nil
		}
		err = errors.Join(err, failed)
	}
	return nil, err
}

// header is what the mapping begins with.
type header struct {
	signature [8]byte
	version   uint32
	size      uint32
	published uint64 // 0: it is being written
	payload   uint64 // address
}

const (
	signature   = "OTEL_CTX"
	version     = 2
	headerBytes = 32
)

func readHeader(pid int, at uint64) (h header, err error) {
	var b [headerBytes]byte
	if err := process.Read(pid, at, b[:]); err != nil {
		return h, err
	}
	copy(h.signature[:], b[:])
	h.version, h.size = binary.NativeEndian.Uint32(b[8:]), binary.NativeEndian.Uint32(b[12:])
	h.published, h.payload = binary.NativeEndian.Uint64(b[16:]), binary.NativeEndian.Uint64(b[24:])
	return h, nil
}

// readAt reads the payload of the mapping at an address: twice the same header means that
// nothing has changed in between.
func readAt(pid int, at uint64) ([]byte, error) {
	for range maxReads {
		before, err := readHeader(pid, at)
		if err != nil {
			return nil, err
		}
		switch {
		case string(before.signature[:]) != signature || before.version != version:
			return nil, fmt.Errorf("a mapping that has its name is none of version %d", version)
		case before.published == 0:
			time.Sleep(betweenTwo)
			continue
		case before.size == 0 || before.size > maxPayload:
			return nil, fmt.Errorf("its process context has %d bytes; allowed: 1 to %d", before.size, maxPayload)
		}
		payload := make([]byte, before.size)
		if err := process.Read(pid, before.payload, payload); err != nil {
			return nil, err
		}
		after, err := readHeader(pid, at)
		if err != nil {
			return nil, err
		}
		if after == before {
			return payload, nil
		}
	}
	return nil, errWritten
}
