package otlp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"slices"

	"google.golang.org/protobuf/proto"

	logspb "go.opentelemetry.io/proto/slim/otlp/logs/v1"

	"github.com/tailcam/tailcam/tracker/events"
)

const (
	journalName = "held.jsonl"
	maxJournal  = 8 << 20 // bytes, before it is written anew
	maxLine     = 4 << 20 // bytes
)

// journal keeps what waits for its explanation, and is in no file of the spool yet: what was
// held by a process that died is sent as it was then. It is not safe for concurrent use.
type journal struct {
	path string
	f    *os.File
	size int64
	has  map[string]*events.Outlier // by id, as written last
}

// journalLine is an outlier that is held from now on or, without Record, no longer.
type journalLine struct {
	ID     string `json:"id"`
	Rule   string `json:"rule,omitempty"`
	Record []byte `json:"record,omitempty"`
}

// openJournal opens a journal, hands what it has to add, and empties it.
func openJournal(path string, add func(rule string, records []*logspb.LogRecord) error) (*journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	j := &journal{path: path, f: f, has: map[string]*events.Outlier{}}
	held := heldIn(f)
	for _, rule := range slices.Sorted(maps.Keys(held)) {
		for part := range slices.Chunk(held[rule], maxBatch) {
			err = errors.Join(err, add(rule, part))
		}
	}
	if err == nil {
		err = j.empty()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return j, nil
}

// heldIn reads what was held at the end of a journal, by rule. A line that was not written
// whole, or is damaged, is left out.
func heldIn(in io.Reader) map[string][]*logspb.LogRecord {
	type held struct {
		rule   string
		record *logspb.LogRecord
	}
	by := map[string]held{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var line journalLine
		record := &logspb.LogRecord{}
		switch {
		case json.Unmarshal(lines.Bytes(), &line) != nil:
		case line.Record == nil:
			delete(by, line.ID)
		case proto.Unmarshal(line.Record, record) == nil:
			by[line.ID] = held{line.Rule, record}
		}
	}
	all := map[string][]*logspb.LogRecord{}
	for _, id := range slices.Sorted(maps.Keys(by)) {
		all[by[id].rule] = append(all[by[id].rule], by[id].record)
	}
	return all
}

// keep notes what is held now. What convert refuses is not kept.
func (j *journal) keep(held []*events.Outlier, convert func(*events.Outlier) (*logspb.LogRecord, error)) error {
	if len(held) == 0 && j.size == 0 {
		return nil
	}
	if len(held) == 0 {
		return j.empty()
	}
	anew := j.size > maxJournal
	if anew {
		j.has = nil
	}
	var text bytes.Buffer
	now := make(map[string]*events.Outlier, len(held))
	for _, o := range held {
		now[o.ID] = o
		if j.has[o.ID] == o {
			continue
		}
		record, err := convert(o)
		if err != nil {
			continue
		}
		data, err := proto.Marshal(record)
		if err == nil {
			err = writeLine(&text, &journalLine{o.ID, o.Rule, data})
		}
		if err != nil {
			return err
		}
	}
	for id := range j.has {
		if now[id] == nil {
			if err := writeLine(&text, &journalLine{ID: id}); err != nil {
				return err
			}
		}
	}
	write := j.append
	if anew {
		write = j.replace
	}
	if err := write(text.Bytes()); err != nil {
		return err
	}
	j.has = now
	return nil
}

func (j *journal) append(text []byte) error {
	n, err := j.f.Write(text)
	if err != nil {
		return errors.Join(err, j.f.Truncate(j.size)) // no half of a line
	}
	j.size += int64(n)
	return nil
}

// replace writes a journal with this text alone, in the place of the one before.
func (j *journal) replace(text []byte) error {
	f, err := os.OpenFile(j.path+".new", os.O_RDWR|os.O_CREATE|os.O_APPEND|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(text); err == nil {
		err = os.Rename(f.Name(), j.path)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	old := j.f
	j.f, j.size = f, int64(len(text))
	return old.Close()
}

func writeLine(to *bytes.Buffer, line *journalLine) error {
	data, err := json.Marshal(line)
	to.Write(data)
	to.WriteByte('\n')
	return err
}

// empty makes the journal say that nothing is held.
func (j *journal) empty() error {
	clear(j.has)
	j.size = 0
	return j.f.Truncate(0)
}

func (j *journal) close() error { return j.f.Close() }
