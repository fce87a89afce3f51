package explain

import (
	"math"
	"testing"

	"github.com/tailcam/tailcam/snapshot/trace"
)

// file is a request for a lock of a file.
func (s *script) file(us uint64, cpu, tid int, b trace.FileLock) *script {
	if b.PID = tid; b.End == 0 {
		b.End = math.MaxInt64
	}
	return s.add(us, trace.FileLockRequest, cpu, tid, b)
}

// TestFileLockTries: who sleeps between tries for a lock of a file waits for its holder, until
// that gives it back.
func TestFileLockTries(t *testing.T) {
	inVain := func(holder int) trace.FileLock {
		return trace.FileLock{Inode: 7, Dev: 1, Ret: -11, Flags: 1, Type: 1, HolderPID: holder}
	}
	got := trace.FileLock{Inode: 7, Dev: 1, Flags: 1, Type: 1}
	given := trace.FileLock{Inode: 7, Dev: 1, Flags: 1, Type: unlock}
	within := func(b trace.FileLock, start, end uint64) trace.FileLock {
		b.Start, b.End = start, end
		return b
	}
	asleep := sleeps(230)
	const itsHolder, itself = "waiting for a lock of a file that other 2 held", "asleep until a timer (until it tried again for a lock of a file)"
	// tried has the victim ask in vain, and sleep from 1 ms to 11 ms.
	tried := func(before trace.FileLock, then func(s *script)) func(*script) {
		return func(s *script) {
			s.swap(300, 1, 0, other, sleeps(0)).swap(500, 0, 0, victim, sleeps(0)).file(990, 0, victim, before).swap(1000, 0, victim, 0, asleep)
			then(s)
		}
	}
	wakes := func(s *script) *script {
		return s.expire(10999, fnSleep, trace.TCPTimer{}, victim).swap(11000, 0, 0, victim, sleeps(0))
	}
	for _, c := range []timerCase{
		{name: "still held", cause: Locked, wait: "file_lock", says: "10.0 ms " + itsHolder, trace: tried(inVain(other), func(s *script) {
			wakes(s).file(11020, 0, victim, inVain(other))
		})},
		{name: "the next try comes late", cause: Locked, wait: "file_lock", says: "10.0 ms " + itsHolder, trace: tried(inVain(other), func(s *script) {
			wakes(s).file(14000, 0, victim, inVain(other))
		})},
		{name: "given back meanwhile", cause: Locked, wait: "file_lock", says: "6.0 ms " + itsHolder + ", which ran for 6.0 ms, 4.0 ms " + itself, trace: tried(inVain(other), func(s *script) {
			wakes(s.file(7000, 1, other, given)).file(11020, 0, victim, got)
		})},
		{name: "given back at once", cause: Timer, says: "9.9 ms " + itself, trace: tried(inVain(other), func(s *script) {
			wakes(s.file(1100, 1, other, given)).file(11020, 0, victim, got)
		})},
		{name: "other bytes are given back", cause: Locked, wait: "file_lock", says: "10.0 ms " + itsHolder, trace: tried(within(inVain(other), 5, 5), func(s *script) {
			wakes(s.file(2000, 1, other, within(given, 6, 9))).file(11020, 0, victim, within(got, 5, 5))
		})},
		{name: "another one is next", cause: Locked, wait: "file_lock", says: itsHolder + ", which ran for 8.0 ms", trace: tried(inVain(other), func(s *script) {
			wakes(s.file(9000, 1, other, given)).file(11020, 0, victim, inVain(third))
		})},
		{name: "whose it is, is seen as it gives it back", cause: Locked, wait: "file_lock", says: "6.0 ms " + itsHolder, trace: tried(inVain(0), func(s *script) {
			wakes(s.file(7000, 1, other, given)).file(11020, 0, victim, got)
		})},
		{name: "nobody knows whose", cause: Locked, wait: "file_lock", says: "for a lock of a file (in clock_nanosleep)", not: "other", trace: tried(inVain(0), func(s *script) {
			wakes(s).file(11020, 0, victim, inVain(0))
		})},
		{name: "a process with several threads", cause: Locked, wait: "file_lock", says: "10.0 ms " + itsHolder + ".", not: "ran", trace: func(s *script) {
			tried(inVain(other), func(s *script) { wakes(s).file(11020, 0, victim, inVain(other)) })(s)
			s.swap(11030, 1, other, 40, trace.Switch{})
			sw := s.list[len(s.list)-1].Body.(trace.Switch)
			sw.NextPID = other
			s.list[len(s.list)-1].Body = sw
		}},
		{name: "another thread of its own", cause: Locked, wait: "file_lock", says: "for a lock of a file (in clock_nanosleep)", not: "victim 1 held", trace: tried(inVain(victim), func(s *script) {
			wakes(s).file(11020, 0, victim, inVain(victim))
		})},
		{name: "it gave up", cause: Timer, says: "asleep until a timer", not: "a lock", trace: tried(inVain(other), func(s *script) { wakes(s) })},
		{name: "it asks for that of another file", cause: Timer, says: "asleep until a timer", not: "a lock", trace: tried(inVain(other), func(s *script) {
			wakes(s).file(11020, 0, victim, trace.FileLock{Inode: 8, Dev: 1, Flags: 1, Type: 1})
		})},
		{name: "it got it", cause: Timer, says: "asleep until a timer", not: "a lock", trace: tried(got, func(s *script) { wakes(s).file(11020, 0, victim, got) })},
		{name: "it sleeps once more before the next try", cause: Timer, says: "asleep until a timer", not: "a lock", trace: tried(inVain(other), func(s *script) {
			wakes(s).swap(11010, 0, victim, 0, asleep).file(15000, 0, victim, inVain(other))
		})},
		{name: "it was woken", cause: Task, says: "for other 2", not: "a lock", trace: tried(inVain(third), func(s *script) {
			s.wake(10999, 1, other, victim, 0).swap(11000, 0, 0, victim, sleeps(0)).file(11020, 0, victim, inVain(third))
		})},
	} {
		t.Run(c.name, c.run)
	}
}
