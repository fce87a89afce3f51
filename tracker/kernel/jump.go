package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// LoadJump loads a program for one end of f that jumps into the program in
// element 0 of table, and does nothing if there is none. cilium/ebpf finds
// functions by name, and refuses those that the kernel's types hold twice.
func LoadJump(f CallFunction, end ebpf.AttachType, table *ebpf.Map) (*ebpf.Program, error) {
	var code bytes.Buffer
	instructions := asm.Instructions{
		asm.LoadMapPtr(asm.R2, table.FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	}
	if err := instructions.Marshal(&code, binary.LittleEndian); err != nil {
		return nil, err
	}
	license, log := []byte("Dual BSD/GPL\x00"), make([]byte, 4096)
	attr := struct { // of union bpf_attr
		kind, instructions         uint32
		code, license              uint64
		logLevel, logSize          uint32
		log                        uint64
		_, _                       uint32
		name                       [16]byte
		_, attachType              uint32
		_, _                       uint32
		_                          uint64
		_, _                       uint32
		_                          uint64
		_, attachBTFID, attachedTo uint32
		_                          uint32
	}{
		kind: uint32(ebpf.Tracing), instructions: uint32(code.Len() / asm.InstructionSize),
		code: address(code.Bytes()), license: address(license), logLevel: 1, logSize: uint32(len(log)), log: address(log),
		attachType: uint32(end), attachBTFID: uint32(f.ID),
	}
	copy(attr.name[:], "call_jump")
	fd, err := bpfCall(unix.BPF_PROG_LOAD, &attr)
	for errors.Is(err, unix.EAGAIN) { // a signal, such as Go's for preemption, was pending: bpf_check() asks
		fd, err = bpfCall(unix.BPF_PROG_LOAD, &attr)
	}
	runtime.KeepAlive(license)
	runtime.KeepAlive(&code)
	if err != nil {
		text, _, _ := bytes.Cut(log, []byte{0})
		return nil, errors.Join(fmt.Errorf("load a program for %s: %w", f.Name, err), errors.New(string(bytes.TrimSpace(text))))
	}
	p, err := ebpf.NewProgramFromFD(fd)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load a program for %s: %w", f.Name, err), unix.Close(fd))
	}
	return p, nil
}

func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }
