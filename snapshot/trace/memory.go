package trace

import (
	"encoding/binary"

	"github.com/tailcam/tailcam/bpf/abi"
)

// memoryStream are the events of one CPU that are not written to a file, or not yet.
type memoryStream struct {
	records []Record
	extras  []extra
	names   *syscallNames
	scratch []byte
}

// Events returns a Reader of what Write would write of the trace, and Read would read: the
// same events, from memory; but for the state dump, if Known is not set yet. The Reader may be
// used beside Write.
func (t *Trace) Events() (*Reader, error) {
	if err := t.complete(); err != nil {
		return nil, err
	}
	r := &Reader{meta: &meta{env: t.Env, layout: layoutVersion, offset: t.ClockOffset}}
	names := &syscallNames{ask: t.SyscallName}
	for _, s := range t.prepared.streams {
		r.streams = append(r.streams, &streamReader{cpu: s.cpu, memory: &memoryStream{records: s.records, extras: s.extras, names: names}})
		r.streams[len(r.streams)-1].pkt.discarded = s.discarded
	}
	r.start()
	return r, nil
}

// next finds the next event in the order of writer.stream; false: there is none.
func (m *memoryStream) next(cpu int) (Event, bool) {
	for len(m.records) > 0 && !m.records[0].known() {
		m.records = m.records[1:]
	}
	if len(m.extras) > 0 && (len(m.records) == 0 || m.extras[0].before(m.records[0].Time())) {
		e := &m.extras[0]
		m.extras = m.extras[1:]
		return Event{Time: e.time, CPU: cpu, Type: e.typ, TID: e.tid, Body: e.values.body(e.typ)}, true
	}
	if len(m.records) == 0 {
		return Event{}, false
	}
	r := &m.records[0]
	m.records = m.records[1:]
	name := ""
	if t := r.Type(); t == SyscallEntry || t == SyscallExit {
		r, name = m.named(r)
	}
	ev, _ := r.Decode() // it is known
	ev.CPU = cpu
	if call, ok := ev.Body.(Syscall); ok {
		call.Name = name
		ev.Body = call
	}
	return ev, true
}

// named returns the record of a system call with what its event declares, and its name.
func (m *memoryStream) named(r *Record) (*Record, string) {
	nr := r.u32(abi.OffSyscallNr)
	call := m.names.get(nr)
	if call == nil {
		return r, ""
	}
	fields := call.entry
	if r.Type() == SyscallExit {
		fields = call.exit
	}
	m.scratch = appendFields(m.scratch[:0], fields, r)
	kept := MakeRecord(r.Type(), r.CPU(), r.TID(), r.Time())
	binary.LittleEndian.PutUint32(kept[abi.OffSyscallNr:], nr)
	_, _ = readFields(m.scratch, fields, &kept) // it is what was appended
	return &kept, call.name
}

// before reports whether the event comes before the records of a time.
func (e *extra) before(now uint64) bool { return e.time < now || e.time == now && !e.after }
