package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A packet begins with LTTng's packet header and packet context.
const (
	ctfMagic = 0xc1fc1fc1

	packetHeaderSize  = 4 + 16 + 4 + 8            // magic, uuid, stream_id, stream_instance_id
	packetContextSize = 8 + 8 + 8 + 8 + 8 + 8 + 4 // see packet
	packetPrefix      = packetHeaderSize + packetContextSize
)

// packet is what the bytes before a packet's events say. Sizes are in bits
// there, in bytes here; the writer never pads, so the packet's size is the
// content's.
type packet struct {
	begin, end uint64 // nanoseconds of CLOCK_MONOTONIC
	size       uint64 // with the prefix
	seq        uint64
	discarded  uint64 // in this stream up to the packet's end
	cpu        uint32
}

// put writes the prefix over the first packetPrefix bytes of b.
func (p *packet) put(b []byte, uuid *[16]byte) {
	le := binary.LittleEndian
	le.PutUint32(b, ctfMagic)
	copy(b[4:20], uuid[:])
	le.PutUint32(b[20:], 0)
	le.PutUint64(b[24:], uint64(p.cpu))
	le.PutUint64(b[32:], p.begin)
	le.PutUint64(b[40:], p.end)
	le.PutUint64(b[48:], p.size*8)
	le.PutUint64(b[56:], p.size*8)
	le.PutUint64(b[64:], p.seq)
	le.PutUint64(b[72:], p.discarded)
	le.PutUint32(b[80:], p.cpu)
}

// parse reads a prefix of packetPrefix bytes.
func (p *packet) parse(b []byte, uuid *[16]byte) error {
	le := binary.LittleEndian
	content := le.Uint64(b[48:])
	*p = packet{
		begin: le.Uint64(b[32:]), end: le.Uint64(b[40:]), size: content / 8,
		seq: le.Uint64(b[64:]), discarded: le.Uint64(b[72:]), cpu: le.Uint32(b[80:]),
	}
	switch {
	case le.Uint32(b) != ctfMagic:
		return errors.New("no packet begins here")
	case [16]byte(b[4:20]) != *uuid:
		return errors.New("packet of another trace")
	case le.Uint32(b[20:]) != 0:
		return fmt.Errorf("unknown stream id %d", le.Uint32(b[20:]))
	case content%8 != 0 || content != le.Uint64(b[56:]) || p.size < packetPrefix:
		return fmt.Errorf("impossible packet size: %d bits in %d", content, le.Uint64(b[56:]))
	case p.begin > p.end || p.end >= maxTime:
		return fmt.Errorf("impossible packet times: %d to %d", p.begin, p.end)
	case p.cpu > maxCPU:
		return fmt.Errorf("impossible CPU %d", p.cpu)
	}
	return nil
}
