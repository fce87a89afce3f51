package otlp

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	logspb "go.opentelemetry.io/proto/slim/otlp/logs/v1"

	"github.com/tailcam/tailcam/internal/linux"
	"github.com/tailcam/tailcam/internal/lockfile"
)

const (
	spoolExt = ".otlp"
	spoolTmp = "tmp" // what is being written
	// maxStored bounds what a file has, in bytes, before compression.
	maxStored = 4 * maxBatchBytes
	blockSize = 4096 // bytes; what a file takes at least
)

// errNoRoom means that outliers find no room on the disk, whatever is dropped for them.
var errNoRoom = errors.New("the file system has no room beside snapshots.min_free")

// stored is a file of a spool: some outliers of one rule. Its name says so, and when it came.
type stored struct {
	name  string
	rule  string
	count int
	bytes int64
}

// spool keeps outliers on disk until the collector has taken them. The name and the place of a
// file are all of its state. Files are not synced: they survive the death of the process, not
// that of the machine. One goroutine uses it; size may be called by any.
type spool struct {
	dir     string
	lock    *os.File
	quota   int64 // bytes
	minFree *atomic.Int64
	dropped *ruleCounts
	ready   chan struct{} // signaled when there is something to take
	zip     *zstd.Encoder
	unzip   *zstd.Decoder
	number  uint64 // of the last file
	journal *journal
	failing atomic.Bool // what was to be added is still in memory

	mu    sync.Mutex // not held during disk access
	turns turns[stored]
	count int // outliers, with those that are being sent
	bytes int64
}

// openSpool opens a directory, and makes what was held when its last user died wait in it.
func openSpool(dir string, quota int64, minFree *atomic.Int64, dropped *ruleCounts, ready chan struct{}) (*spool, error) {
	s := &spool{dir: dir, quota: quota, minFree: minFree, dropped: dropped, ready: ready}
	err := os.MkdirAll(dir, 0o700)
	if err != nil {
		return nil, err
	}
	if s.lock, err = lockfile.Take(filepath.Join(dir, ".lock"), nil); err != nil {
		return nil, err
	}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *spool) open() (err error) {
	if s.zip, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1)); err != nil {
		return err
	}
	if s.unzip, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxStored)); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.dir) // sorted
	if err != nil {
		return err
	}
	for _, e := range entries {
		f, number, ok := parseStored(e.Name())
		info, err := e.Info()
		if !ok || err != nil || !info.Mode().IsRegular() {
			continue // not ours
		}
		f.bytes = blocks(info.Size())
		s.number = max(s.number, number)
		s.has(f)
	}
	s.journal, err = openJournal(filepath.Join(s.dir, journalName), s.add)
	return err
}

func (s *spool) close() error {
	if s.journal != nil {
		return errors.Join(s.journal.close(), s.lock.Close())
	}
	return s.lock.Close()
}

// parseStored reads the name of a file.
func parseStored(name string) (f stored, number uint64, ok bool) {
	base, ours := strings.CutSuffix(name, spoolExt)
	parts := strings.SplitN(base, "-", 3)
	if !ours || len(parts) != 3 {
		return f, 0, false
	}
	number, err := strconv.ParseUint(parts[0], 10, 64)
	count, err2 := strconv.Atoi(parts[1])
	rule, err3 := url.PathUnescape(parts[2])
	ok = errors.Join(err, err2, err3) == nil && count > 0 && count <= maxBatch
	return stored{name: name, rule: rule, count: count}, number, ok
}

func blocks(bytes int64) int64 { return (bytes + blockSize - 1) / blockSize * blockSize }

// has notes a file that waits.
func (s *spool) has(f stored) {
	s.mu.Lock()
	s.turns.add(f.rule, f)
	s.count += f.count
	s.bytes += f.bytes
	s.mu.Unlock()
	signalOnce(s.ready)
}

// remove removes a file that is in no turn any more.
func (s *spool) remove(f stored) error {
	s.mu.Lock()
	s.count -= f.count
	s.bytes -= f.bytes
	s.mu.Unlock()
	return os.Remove(filepath.Join(s.dir, f.name))
}

// size is how many outliers wait, and how much room they take.
func (s *spool) size() (count int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count, s.bytes
}

// add makes outliers of a rule wait. For them, the rule that takes most may lose its oldest.
func (s *spool) add(rule string, records []*logspb.LogRecord) error {
	data, err := proto.Marshal(&logspb.ScopeLogs{LogRecords: records})
	if err != nil {
		return err
	}
	data = s.zip.EncodeAll(data, nil)
	f := stored{rule: rule, count: len(records), bytes: blocks(int64(len(data)))}
	if err := s.makeRoom(f.bytes); err != nil {
		return err
	}
	f.name = fmt.Sprintf("%020d-%d-%s%s", s.number+1, f.count, url.PathEscape(rule), spoolExt)
	tmp := filepath.Join(s.dir, spoolTmp)
	if err = os.WriteFile(tmp, data, 0o600); err == nil {
		err = os.Rename(tmp, filepath.Join(s.dir, f.name))
	}
	if err != nil {
		_ = os.Remove(tmp) // it is written over in any case
		return err
	}
	s.number++
	s.has(f)
	return nil
}

// makeRoom drops what has to go for so many bytes.
func (s *spool) makeRoom(bytes int64) error {
	for {
		free, err := linux.FreeBytes(s.dir)
		if err != nil {
			return err
		}
		_, used := s.size()
		if used+bytes <= s.quota && free-s.minFree.Load() >= bytes {
			return nil
		}
		s.mu.Lock()
		rule, ok := s.turns.most(func(list []stored) (all int64) {
			for _, f := range list {
				all += f.bytes
			}
			return all
		})
		var f stored
		if ok {
			f = s.turns.oldest(rule)
		}
		s.mu.Unlock()
		if !ok {
			return errNoRoom
		}
		s.dropped.add(f.rule, uint64(f.count))
		if err := s.remove(f); err != nil {
			return err
		}
	}
}

// take reads outliers of the rules in turn, as many as fit into a request; nil: none waits.
// What cannot be read is dropped and counted, and told to warn.
func (s *spool) take(warn func(error)) *batch {
	b, size := &batch{}, 0
	for size < maxBatchBytes {
		f, ok := s.pop(maxBatch - len(b.records))
		if !ok {
			break
		}
		records, bytes, err := s.read(f)
		if err != nil {
			s.dropped.add(f.rule, uint64(f.count))
			warn(fmt.Errorf("%s: %w", f.name, errors.Join(err, s.remove(f))))
			continue
		}
		size += bytes
		b.files = append(b.files, f)
		for _, r := range records {
			b.add(f.rule, r)
		}
	}
	if len(b.records) == 0 {
		return nil
	}
	return b
}

// pop takes the next file, if it has no more outliers than that.
func (s *spool) pop(most int) (f stored, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rule, ok := s.turns.next()
	if !ok || s.turns.waiting[rule][0].count > most {
		return f, false
	}
	return s.turns.take()
}

// read returns what a file has, and how much that is before compression.
func (s *spool) read(f stored) ([]*logspb.LogRecord, int, error) {
	data, err := os.ReadFile(filepath.Join(s.dir, f.name))
	if err == nil {
		data, err = s.unzip.DecodeAll(data, nil) // and checks the sum
	}
	logs := &logspb.ScopeLogs{}
	if err == nil {
		err = proto.Unmarshal(data, logs)
	}
	if err == nil && len(logs.GetLogRecords()) != f.count {
		err = fmt.Errorf("it has %d outliers", len(logs.GetLogRecords()))
	}
	return logs.GetLogRecords(), len(data), err
}

// settle removes what the collector has answered for good.
func (s *spool) settle(files []stored) (err error) {
	for _, f := range files {
		err = errors.Join(err, s.remove(f))
	}
	return err
}
