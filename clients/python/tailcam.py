# SPDX-License-Identifier: Apache-2.0
"""Activities: what each request of a program costs and waits for.

    import tailcam

    h = tailcam.open(required=False)      # a daemon with activities.enabled
    t = h.token("checkout")
    h.switch(t)                           # this thread works for t from here
    ...
    h.switch(None)                        # and for nobody from here
    account = h.end(t)                    # {"wall_ns": ..., "cpu_ns": ..., "blocked_disk_ns": ...}

A token is a plain number, or None when none is free. It goes with a work item to another thread,
which switches to it; wrap() does that for a function. None and 0 are accepted everywhere: nothing
fails, and accounts are zeros. Any thread may call anything at any time. A thread needs no
registration: its first switch claims a slot, with a system call; the later ones make none.

wall_ns is how long threads have carried the token, summed over them, and is cpu_ns + runnable_ns +
blocked_ns + unexplained_ns; elapsed_ns is from token() to now, or to its end.

Needs Linux on x86-64 or arm64, and nothing but the standard library of Python 3.9 or later.
"""

import array
import fcntl
import json
import mmap
import os
import socket as _socket
import sys
import threading
import weakref
from contextlib import contextmanager, nullcontext
from time import monotonic_ns

__all__ = ["Error", "Handle", "SOCKET", "VALUES", "merge", "open", "trigger"]

SOCKET = "/run/tailcam/tailcam.sock"

#: What an account has, in the order of the kernel side. `tailcam list accounts` says where each
#: comes from, and which are not to be had on a kernel.
VALUES = (
    "cpu_ns", "cpu_kernel_ns", "runnable_ns", "runnable_preempted_ns", "runnable_woken_ns",
    "runnable_throttled_ns", "blocked_ns", "blocked_disk_ns", "blocked_lock_ns",
    "blocked_network_ns", "blocked_task_ns", "blocked_timer_ns", "blocked_fault_ns",
    "blocked_reclaim_ns", "blocked_work_ns", "blocked_other_ns", "switches", "preemptions",
    "wakeups", "syscalls", "syscall_ns", "faults_minor", "faults_major", "fault_ns",
    "cache_hits", "cache_misses", "block_requests", "block_bytes", "block_queue_ns",
    "block_device_ns", "tcp_bytes_sent", "tcp_bytes_received", "tcp_segments",
    "tcp_retransmits", "network_ns", "memory_bytes", "work_items", "work_ns",
    "work_blocked_ns", "writeback_bytes", "evicted_pages", "evicts_pages", "cycles",
    "instructions", "cache_misses_hw", "runnable_stolen_ns", "blocked_kernel_lock_ns",
    "kernel_locks", "kernel_lock_mutex_ns", "kernel_lock_rwsem_ns", "kernel_lock_spin_ns",
    "kernel_lock_rtmutex_ns",
)

_SUMS = VALUES + ("wall_ns", "elapsed_ns", "unexplained_ns", "tcp_bytes")

# Shared memory, as bpf/abi/activity.h has it: offsets in words of 4 (_4) or 8 bytes.
_ABI = 1
_SHARED, _ACCOUNT = 128, 512
_WINDOW = 8
# struct activity_thread, activity_token, activity_client
_THREAD_TID_4, _THREAD_SEQ_4, _THREAD_HALF = 0, 1, 1
_TOKEN_GENERATION_4 = 0
_TOKEN_BEGIN, _TOKEN_END, _TOKEN_CPU, _TOKEN_WALL, _TOKEN_VALUE = 1, 2, 3, 4, 5
_TOKEN_TRACE, _TOKEN_NAME, _TOKEN_TEXT, _TOKEN_ATTRIBUTES = 48, 72, 104, 120  # bytes
_TOKEN_ATTRIBUTES_2 = 4  # of 2 bytes
_CLIENT_NEXT, _CLIENT_TOKENS_REFUSED, _CLIENT_THREADS_REFUSED, _CLIENT_ATTRIBUTES_REFUSED = 0, 1, 2, 3
# struct activity_attribute: its state, and the key and value behind it, in bytes
_PAIR_READY, _PAIR_KEY, _PAIR_VALUE = 2, 32, 92
# struct activity_thread_state, activity_header
_STATE_SLICES_4, _STATE_SLICE = 1, 1
_STATE_SEEN_SEQ_4, _STATE_SEEN_SLICE_4, _STATE_SEEN = 4, 5, 3
_STATE_OUT, _STATE_WAKING, _STATE_CAUSE_4 = 4, 5, 14
_HEADER_LATE, _HEADER_SLOW, _HEADER_MACHINE = 3, 4, 5
_ACCOUNT_GENERATION_4 = 126  # struct activity_account

# Own memory, shared with processes that inherit.
_FAMILY_ENDED, _FAMILY_FULL, _FAMILY_WAS_FULL, _FAMILY_STALE, _FAMILY_UNTOLD, _FAMILY = range(6)  # and a byte for each token: 1 while it is live


class Error(Exception):
    """Says what is wrong, and what to do."""


class _Slot:
    """Where a thread's words are."""

    __slots__ = ("tid", "seq", "half", "state_4", "state")

    def __init__(self, index):
        self.tid = index * _SHARED // 4 + _THREAD_TID_4
        self.seq = index * _SHARED // 4 + _THREAD_SEQ_4
        self.half = index * _SHARED // 8 + _THREAD_HALF
        self.state_4 = index * _ACCOUNT // 4
        self.state = index * _ACCOUNT // 8


class _Family:
    """Excludes other threads and, once the process has forked, the processes that inherited."""

    def __init__(self, inherit):
        self._threads = threading.RLock()
        self._file = os.memfd_create("tailcam", os.MFD_CLOEXEC) if inherit else None
        self._forked = False

    def __enter__(self):
        self._threads.acquire()
        if self._forked:
            fcntl.lockf(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_):
        if self._forked:
            fcntl.lockf(self._file, fcntl.LOCK_UN)
        self._threads.release()

    def before_fork(self):
        self._threads.acquire()
        self._forked = self._file is not None

    def after_fork_in_parent(self):
        self._threads.release()

    def after_fork_in_child(self):
        self._threads = threading.RLock()

    def __del__(self):
        if self._file is not None:
            os.close(self._file)


class Handle:
    """Activities of this process. See open()."""

    def __init__(self):
        self._connection = None
        self._me = threading.local()
        self._inherit = False
        self.error = None  #: why open(required=False) failed, or None

    def __bool__(self):
        return self._connection is not None

    # ------------------------------------------------------------------------- tokens

    def token(self, name=""):
        """A new token for a request; its name, such as checkout, is that of its kind.

        None if all are live, which is counted.
        """
        if not self:
            return None
        with self._family:
            slot = self._take()
            if slot is None:
                self._q[_CLIENT_TOKENS_REFUSED] += 1
                return None
            index = self._first + slot
            at = index * _SHARED
            generation = self._i[at // 4 + _TOKEN_GENERATION_4] + 1
            self._shared[at + 4 : at + _SHARED] = bytes(_SHARED - 4)
            self._q[at // 8 + _TOKEN_BEGIN] = monotonic_ns()
            self._put(at + _TOKEN_NAME, 32, name)
            self._i[at // 4 + _TOKEN_GENERATION_4] = generation
        return generation << 32 | index

    def end(self, token):
        """Frees the token, and returns its account. Other threads that carry it are for nobody."""
        if token and self.current() == token:
            self.switch(None)
        if not self:
            return _empty()
        with self._family:
            at = self._find(token)
            if at is None:
                return _empty()
            account = self._account(token, at)
            self._q[at // 8 + _TOKEN_END] = self._q[at // 8 + _TOKEN_BEGIN] + account["elapsed_ns"]
            self._i[at // 4 + _TOKEN_GENERATION_4] = (token >> 32) + 1 & 0xFFFFFFFF
            self._taken[_FAMILY * 8 + (token & 0xFFFFFFFF) - self._first] = 0
            self._family_words[_FAMILY_ENDED] += 1
        self._tell_if_slow(token, account["elapsed_ns"])
        return account

    def set_value(self, token, value):
        """A number of the application's (64 bits), which its account has as value."""
        at = self._find(token)
        if at is not None:
            self._q[at // 8 + _TOKEN_VALUE] = value & 0xFFFFFFFFFFFFFFFF

    def set_text(self, token, text):
        """A text of the application's, of at most 15 bytes of UTF-8, which its account has as text."""
        at = self._find(token)
        if at is not None:
            self._put(at + _TOKEN_TEXT, 16, text)

    def set_trace(self, token, trace_id, span_id):
        """The trace and the span that the request is part of: 16 and 8 bytes, or hexadecimal."""
        ids = _bytes(trace_id, 16) + _bytes(span_id, 8)
        at = self._find(token)
        if at is not None:
            self._shared[at + _TOKEN_TRACE : at + _TOKEN_TRACE + 24] = ids

    def set_attribute(self, token, key, value):
        """An attribute of the request, such as http.route, that tailcam groups and filters by.

        A process has at most 256 different ones, and a token four: more are counted. The key is cut at
        31 bytes, the value at 91. The same key again replaces its value, and None or "" takes it away.
        """
        key = _cut(key, _PAIR_KEY)
        if not key.strip(b"\0"):
            raise ValueError("a key is needed")
        with self._family if self else nullcontext():
            at = self._find(token)
            if at is None:
                return
            place = None
            for n in range(_TOKEN_ATTRIBUTES_2):
                word = (at + _TOKEN_ATTRIBUTES) // 2 + n
                number = self._h[word]
                if not 0 < number <= self._pairs:
                    place = word if place is None else place
                elif self._pair(number)[:_PAIR_KEY] == key:
                    place = word
                    break
            number = self._number(key + _cut(value, _PAIR_VALUE)) if value and place is not None else 0
            if place is not None:
                self._h[place] = number
            if value and not number:
                self._q[_CLIENT_ATTRIBUTES_REFUSED] += 1

    # ------------------------------------------------------------------------- threads

    def switch(self, token):
        """From here the calling thread works for token; None or 0: for nobody.

        False if no slot is free for the thread, or the token has ended: it then works for nobody.
        """
        slot = getattr(self._me, "slot", None) or self._join()
        if slot is None:
            return not self
        token = token or 0
        i, q, ai, aq = self._i, self._q, self._ai, self._aq
        fine = True
        if token and self._find(token) is None:
            self._family_words[_FAMILY_STALE] += 1
            token, fine = 0, False
        seq = i[slot.seq]
        old = slot.half + 2 * (seq & 1)
        new = slot.half + 2 * (seq + 1 & 1)
        carried, since = q[old], q[old + 1]
        slices_at, out_at = slot.state_4 + _STATE_SLICES_4, slot.state + _STATE_OUT
        while True:
            slices, out = ai[slices_at], aq[out_at]
            now = monotonic_ns()
            start = max(since, aq[slot.state + _STATE_SLICE])
            if ai[slices_at] == slices and aq[out_at] == out:
                break
        now = max(now, start)  # a slice begins up to some microseconds late
        # That it runs, and how it came back was not seen, is unexplained.
        cpu = now - start if start > out else 0
        q[new] = token
        q[new + 1] = now
        i[slot.seq] = seq + 1 & 0xFFFFFFFF  # one store: the kernel side sees both or none
        if ai[slices_at] != slices or aq[out_at] != out:
            now, cpu = self._interrupted(slot, seq + 1 & 0xFFFFFFFF, slices, out, now, cpu)
        if carried:
            self._credit(carried, now - since, cpu)
        return fine

    def current(self):
        """The token that the calling thread works for, to hand it over to another; None: none."""
        slot = getattr(self._me, "slot", None) or self._join()
        if slot is None:
            return None
        return self._q[slot.half + 2 * (self._i[slot.seq] & 1)] or None

    @contextmanager
    def carry(self, token):
        """with h.carry(t): the thread works for t, and then for what it did before."""
        before = self.current()
        self.switch(token)
        try:
            yield token
        finally:
            self.switch(before)

    def wrap(self, function):
        """A function that does the same in any thread, for the token that this thread has now."""
        token = self.current()

        def carried(*args, **kwargs):
            with self.carry(token):
                return function(*args, **kwargs)

        return carried

    # ------------------------------------------------------------------------- accounts

    def read(self, token):
        """What the token has cost until now: a dict. Zeros if there is no such token any more."""
        at = self._find(token)
        if at is None:
            return _empty()
        return self._account(token, at)

    def accounts(self):
        """Yields the account of each live token of the process."""
        for slot in range(self._tokens if self else 0):
            index = self._first + slot
            generation = self._i[index * _SHARED // 4 + _TOKEN_GENERATION_4] if self else 0
            if generation & 1:
                account = self.read(generation << 32 | index)
                if account["token"]:
                    yield account

    def map(self, function):
        """Yields function(account) of each live token."""
        return (function(account) for account in self.accounts())

    def filter(self, keep):
        """Yields the accounts of live tokens for which keep(account) is true."""
        return (account for account in self.accounts() if keep(account))

    def fold(self, function, initial):
        """function(function(initial, account), account), and so on, over the accounts of live tokens."""
        for account in self.accounts():
            initial = function(initial, account)
        return initial

    def merge(self, accounts=None):
        """The sum of accounts, of any iterable; None: of all live tokens."""
        return merge(self.accounts() if accounts is None else accounts)

    def shared(self):
        """What is known of the process, and not of which of its tokens: a dict, never guessed.

        Of VALUES, those from syscalls on; the others are 0. machine_ns: what interrupts and softirqs took
        on top of its threads, with group interrupts; it is in the cpu_ns of tokens, too. late: a count of
        what was to be credited to tokens that had ended.
        """
        shared = dict.fromkeys(VALUES + ("machine_ns", "late"), 0)
        if self:
            shared.update(zip(VALUES[_SYSCALLS:], self._aq[_SYSCALLS : len(VALUES)]))
            shared.update(machine_ns=self._aq[_HEADER_MACHINE], late=self._aq[_HEADER_LATE])
        return shared

    def stats(self):
        """What did not work since open(): a dict of counts.

        tokens_full: token() while all were live. threads_full: no slot for a thread. stale: switches
        to a token that had ended. untold: slow requests that the daemon did not hear of. attributes_full:
        too many different attributes, or too many of one token.
        """
        if not self:
            return dict.fromkeys(("tokens_full", "threads_full", "stale", "untold", "attributes_full"), 0)
        return {
            "tokens_full": self._q[_CLIENT_TOKENS_REFUSED],
            "threads_full": self._q[_CLIENT_THREADS_REFUSED],
            "stale": self._family_words[_FAMILY_STALE],
            "untold": self._family_words[_FAMILY_UNTOLD],
            "attributes_full": self._q[_CLIENT_ATTRIBUTES_REFUSED],
        }

    def trigger(self, reason, last=None, after=None):
        """See trigger()."""
        return trigger(reason, self._path, last, after)

    def close(self):
        """Ends activities in this process. The handle then does nothing."""
        if self._connection is not None and not self._inherit:
            _shutdown(self._connection)  # a child may have the descriptor until its exec: the daemon is to know now
        self._leave()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ------------------------------------------------------------------------- inside

    def _leave(self):
        connection, self._connection = self._connection, None
        if connection is None:
            return
        connection.close()
        self._me = threading.local()
        # What other threads do meanwhile goes to memory that nobody reads.
        size = 1 + self._threads + self._tokens
        self._view(mmap.mmap(-1, (size + self._pairs) * _SHARED), mmap.mmap(-1, size * _ACCOUNT))

    def _start(self, path, threads, tokens, inherit):
        self._path, self._inherit = path, inherit
        connection, head, fds = _upgrade(path, threads, tokens, inherit)
        try:
            self._threads, self._tokens, self._pairs = _sizes(head)
            if len(fds) != 2:
                raise Error("the daemon's reply makes no sense")
            size = 1 + self._threads + self._tokens
            self._view(
                mmap.mmap(fds[0], _pages((size + self._pairs) * _SHARED)),
                mmap.mmap(fds[1], _pages(size * _ACCOUNT), prot=mmap.PROT_READ),
            )
        except (OSError, ValueError) as e:
            connection.close()
            raise Error(f"map accounts: {e}") from e
        except Error:
            connection.close()
            raise
        finally:
            for fd in fds:
                os.close(fd)
        self._first = 1 + self._threads
        self._shift = 32 - (self._threads.bit_length() - 1)
        self._taken = mmap.mmap(-1, _FAMILY * 8 + self._tokens)
        self._family_words = memoryview(self._taken)[: _FAMILY * 8].cast("Q")
        self._family = _Family(inherit)
        self._connection = connection
        connection.setblocking(False)

    def _view(self, shared, accounts):
        self._shared = memoryview(shared)
        self._h, self._i, self._q = (self._shared.cast(of) for of in "HIQ")
        accounts = memoryview(accounts)
        self._ai, self._aq = accounts.cast("I"), accounts.cast("Q")

    def _after_fork_in_child(self):
        self._me = threading.local()
        if self._inherit:
            self._family.after_fork_in_child()
        else:
            self._leave()

    def _join(self):
        """Finds the calling thread's slot, which the kernel side gave it at a fork, or claims one."""
        if not self:
            return None
        refused = getattr(self._me, "refused", 0)
        self._me.refused = refused + 1
        if refused % 1024:  # looks again only so often
            self._q[_CLIENT_THREADS_REFUSED] += 1
            return None
        tid = threading.get_native_id()
        home = (tid * 0x9E3779B1 & 0xFFFFFFFF) >> self._shift
        window = [_Slot(1 + (home + n & self._threads - 1)) for n in range(_WINDOW)]
        i = self._i
        with self._family:
            mine = [slot for slot in window if i[slot.tid] == tid]
            free = [slot for slot in window if i[slot.tid] == 0]
            if not mine and not free:
                self._q[_CLIENT_THREADS_REFUSED] += 1
                return None
            slot = (mine or free)[0]
            if not mine:
                i[slot.tid] = tid
                half = slot.half + 2 * (i[slot.seq] + 1 & 1)
                self._q[half], self._q[half + 1] = 0, monotonic_ns()
                i[slot.seq] = i[slot.seq] + 1 & 0xFFFFFFFF
        self._me.slot, self._me.refused = slot, 0
        return slot

    def _interrupted(self, slot, seq, slices, out, now, cpu):
        """The kernel has switched the thread out and in since the clock was read for a switch.

        What it saw before the commit went to the old token, whose time then ends where the slice of the
        commit began: this one, or the one in which it saw the new half for the first time. Some machines
        keep switches from every tracer: then it saw that the thread left, and not that it came back.
        """
        ai, aq = self._ai, self._aq
        while True:
            again, left = ai[slot.state_4 + _STATE_SLICES_4], aq[slot.state + _STATE_OUT]
            seen, first = ai[slot.state_4 + _STATE_SEEN_SEQ_4], ai[slot.state_4 + _STATE_SEEN_SLICE_4]
            border = aq[slot.state + _STATE_SEEN] if seen == seq else left or aq[slot.state + _STATE_SLICE]
            if ai[slot.state_4 + _STATE_SLICES_4] == again and aq[slot.state + _STATE_OUT] == left:
                break
        if seen == seq and first == slices or again == slices and left == out:
            return now, cpu  # all was after the commit
        now = max(now, border)
        self._q[slot.half + 2 * (seq & 1) + 1] = now
        return now, 0

    def _credit(self, token, wall, cpu):
        at = self._find(token)
        if at is None:
            return  # another thread has ended it
        at //= 8
        with self._family:
            self._q[at + _TOKEN_WALL] += max(wall, 0)
            self._q[at + _TOKEN_CPU] += max(cpu, 0)

    def _find(self, token):
        """Where the token is in shared memory, in bytes, or None."""
        if not token or not self:
            return None
        index, generation = token & 0xFFFFFFFF, token >> 32
        if not 0 <= index - self._first < self._tokens or not generation & 1:
            return None
        at = index * _SHARED
        return at if self._i[at // 4 + _TOKEN_GENERATION_4] == generation else None

    def _pair(self, number):
        """Key and value of an attribute, as they are in shared memory."""
        at = (self._first + self._tokens + number - 1) * _SHARED
        return bytes(self._shared[at + 4 : at + _SHARED])

    def _number(self, pair):
        """The number of an attribute, which is written if it is not there; 0: no place is free."""
        for number in range(1, self._pairs + 1):
            at = (self._first + self._tokens + number - 1) * _SHARED
            if not self._i[at // 4]:
                self._shared[at + 4 : at + _SHARED] = pair
                self._i[at // 4] = _PAIR_READY
                return number
            if self._pair(number) == pair:
                return number
        return 0

    def _take(self):
        words = self._family_words
        if words[_FAMILY_WAS_FULL] and words[_FAMILY_FULL] == words[_FAMILY_ENDED]:
            return None  # and none has ended since
        start = _FAMILY * 8 + self._q[_CLIENT_NEXT] % self._tokens
        free = self._taken.find(b"\0", start)  # those from there on have been free for longer
        if free < 0:
            free = self._taken.find(b"\0", _FAMILY * 8, start)
        if free < 0:
            words[_FAMILY_FULL], words[_FAMILY_WAS_FULL] = words[_FAMILY_ENDED], 1
            return None
        self._taken[free] = 1
        self._q[_CLIENT_NEXT] = free - _FAMILY * 8 + 1
        return free - _FAMILY * 8

    def _put(self, at, size, text):
        self._shared[at : at + size] = _cut(text, size)

    def _get(self, at, size):
        return bytes(self._shared[at : at + size]).split(b"\0")[0].decode(errors="replace")

    def _account(self, token, at):
        """Two readings must agree, or as many as are worth it."""
        for _ in range(4):
            now = monotonic_ns()
            values, wall, seen = self._sum(token, at // 8, now)
            if self._sum(token, at // 8, now)[2] == seen:
                break
        account = dict(zip(VALUES, values))
        account["wall_ns"] = wall
        known = account["cpu_ns"] + account["runnable_ns"] + account["blocked_ns"]
        account["unexplained_ns"] = max(wall - known, 0)
        account["elapsed_ns"] = max(now - self._q[at // 8 + _TOKEN_BEGIN], 0)
        account["tcp_bytes"] = account["tcp_bytes_sent"] + account["tcp_bytes_received"]
        account["token"] = token
        account["value"] = self._q[at // 8 + _TOKEN_VALUE]
        account["name"] = self._get(at + _TOKEN_NAME, 32)
        account["text"] = self._get(at + _TOKEN_TEXT, 16)
        ids = bytes(self._shared[at + _TOKEN_TRACE : at + _TOKEN_TRACE + 24])
        account["trace_id"] = ids[:16].hex() if any(ids[:16]) else ""
        account["span_id"] = ids[16:].hex() if any(ids[16:]) else ""
        return account

    def _sum(self, token, at, now):
        """Values, wall time, and what changes when something is credited to the token."""
        index, q = token & 0xFFFFFFFF, self._q
        wall, values_at = q[at + _TOKEN_WALL], index * _ACCOUNT // 8
        if self._ai[2 * values_at + _ACCOUNT_GENERATION_4] == token >> 32:
            values = list(self._aq[values_at : values_at + len(VALUES)])
        else:
            values = [0] * len(VALUES)  # of an older token: nothing has been credited to this one
        values[_CPU] += q[at + _TOKEN_CPU]
        seen = [wall, *values]
        for n in range(1, self._first):
            if not self._i[n * _SHARED // 4 + _THREAD_TID_4]:
                continue
            slot = _Slot(n)
            seq = self._i[slot.seq]
            half = slot.half + 2 * (seq & 1)
            if q[half] == token:
                state = tuple(self._aq[slot.state : slot.state + _STATE_CAUSE_4 // 2 + 1])
                seen += [n, seq, state]
                wall += self._progress(slot, values, q[half + 1], now)
        return values, wall, seen

    def _progress(self, slot, values, since, now):
        """Adds what a thread that carries the token has not yet been credited with."""
        if now < since:
            return 0
        out, waking = self._aq[slot.state + _STATE_OUT], self._aq[slot.state + _STATE_WAKING]
        if not out or self._ai[slot.state_4] != self._i[slot.tid]:
            values[_CPU] += max(now - max(self._aq[slot.state + _STATE_SLICE], since), 0)
            return now - since
        out, cause = max(out, since), self._ai[slot.state_4 + _STATE_CAUSE_4]
        if out > now:
            return now - since
        if _RUNNABLE < cause < _BLOCKED:
            values[_RUNNABLE] += now - out
            values[cause] += now - out
            return now - since
        if not _BLOCKED < cause <= _BLOCKED_OTHER and cause != _BLOCKED_KERNEL_LOCK:
            cause = _BLOCKED_OTHER
        if not out <= waking <= now:
            waking = now
        values[_BLOCKED] += waking - out
        values[cause] += waking - out
        values[_RUNNABLE] += now - waking
        values[_RUNNABLE_WOKEN] += now - waking
        return now - since

    def _tell_if_slow(self, token, elapsed):
        """Tells the daemon of a slow request, for rules of `track: activity`. It reads the maps itself."""
        slow = self._aq[_HEADER_SLOW]
        connection = self._connection
        if not slow or elapsed < slow or connection is None:
            return
        try:
            connection.send(token.to_bytes(8, sys.byteorder), _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL)
        except OSError:
            self._family_words[_FAMILY_UNTOLD] += 1


_CPU, _RUNNABLE, _RUNNABLE_WOKEN, _BLOCKED, _BLOCKED_OTHER, _BLOCKED_KERNEL_LOCK = (
    VALUES.index(name + "_ns")
    for name in ("cpu", "runnable", "runnable_woken", "blocked", "blocked_other", "blocked_kernel_lock")
)
_SYSCALLS = VALUES.index("syscalls")
_open_handle = None
_opening = threading.Lock()


def open(path=None, threads=256, tokens=1024, inherit=False, required=True):
    """Opens activities for this process, over the daemon's socket.

    threads: slots for threads that switch, a power of two, at most 4096. tokens: live at the same time,
    at most 131072. inherit: threads and processes (fork) go on with the token of whoever made them.
    Error if that fails. With required=False it is a handle that does nothing, and says why in .error,
    so that a program goes on without. Gives up after five seconds. A process has one at a time.
    """
    global _open_handle
    handle = Handle()
    try:
        with _opening:
            if _open_handle is not None and _open_handle():
                raise Error("activities are open in this process already")
            handle._start(path or SOCKET, threads, tokens, inherit)
            _open_handle = weakref.ref(handle)
    except Error as e:
        if required:
            raise
        handle.error = str(e)
    return handle


def merge(accounts):
    """The sum of accounts, of any iterable: a dict of the numbers that can be added up."""
    total = dict.fromkeys(_SUMS, 0)
    for account in accounts:
        for name in _SUMS:
            total[name] += account[name]
    return total


def trigger(reason, path=None, last=None, after=None):
    """Has the daemon save the seconds before now, because of reason. The snapshot's id.

    The snapshot explains what the calling thread did and waited for in the time before: last seconds,
    one by default. after: seconds to record beyond now, at most 60. Does not wait until it is saved.
    Needs no handle. Error if the daemon cannot be reached, or refuses.
    """
    request = {"reason": reason, "no_wait": True, "self": True, "tid": threading.get_native_id()}
    request.update((name, f"{value:.9f}s") for name, value in (("last", last), ("after", after)) if value is not None)
    body = json.dumps(request).encode()
    path = path or SOCKET
    with _connect(path) as connection:
        head = "POST /v1/trigger HTTP/1.1\r\nContent-Type: application/json\r\n"
        status, reply, _ = _ask(connection, path, f"{head}Connection: close\r\nContent-Length: {len(body)}", body)
    if status != 200:
        raise _refusal(status, reply)
    try:
        return json.loads(reply[1])["id"]
    except (ValueError, KeyError, TypeError):
        raise Error(f"unexpected reply from {path}: is another program listening there?") from None


def _empty():
    account = dict.fromkeys(_SUMS, 0)
    account.update(token=0, value=0, name="", text="", trace_id="", span_id="")
    return account


def _cut(text, size):
    """A text, cut to fit, and filled up with NULs."""
    return str(text).encode(errors="replace")[: size - 1].ljust(size, b"\0")


def _bytes(value, size):
    value = bytes.fromhex(value) if isinstance(value, str) else bytes(value)
    if len(value) != size:
        raise ValueError(f"an id of {size} bytes is needed, not of {len(value)}")
    return value


def _pages(size):
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def _connect(path):
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.settimeout(5)
    try:
        connection.connect(path)
    except PermissionError:
        connection.close()
        raise Error(f"permission denied: {path}: join its group, and log in again") from None
    except OSError as e:
        connection.close()
        raise Error(f"daemon not reachable at {path}: {e}: start it with \"sudo tailcam run\"") from None
    return connection


def _shutdown(connection):
    try:
        connection.shutdown(_socket.SHUT_RDWR)
    except OSError:
        pass  # the daemon has gone


def _ask(connection, path, head, body=b""):
    """Sends a request. The status, headers and body of the reply, and the descriptors that came with it."""
    reply, fds = b"", array.array("i")
    try:
        connection.sendall(head.encode() + b"\r\nHost: tailcam\r\n\r\n" + body)
        while len(reply) < 65536:
            data, controls, _, _ = connection.recvmsg(4096, _socket.CMSG_SPACE(4 * fds.itemsize))
            for level, kind, content in controls:
                if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                    fds.frombytes(content[: len(content) // fds.itemsize * fds.itemsize])
            reply += data
            headers, end, rest = reply.partition(b"\r\n\r\n")
            if not data or (end and len(rest) >= _number(headers, "Content-Length")):
                break
        status = int(headers.split(None, 2)[1])
    except (OSError, IndexError, ValueError) as e:
        for fd in fds:
            os.close(fd)
        if isinstance(e, TimeoutError):
            raise Error(f"no answer from the daemon at {path} within 5 s: it may still be starting") from None
        raise Error(f"unexpected reply from {path}: {e}: is another program listening there?") from None
    return status, (headers, rest), list(fds)


def _number(headers, name):
    for line in headers.decode(errors="replace").split("\r\n")[1:]:
        key, _, value = line.partition(":")
        if key.lower() == name.lower() and value.strip().isascii() and value.strip().isdigit():
            return int(value)
    return 0


def _refusal(status, reply):
    try:
        return Error(json.loads(reply[1])["error"])
    except (ValueError, KeyError, TypeError):
        return Error(f"unexpected reply: {status}: is another program listening there, or an older tailcam?")


def _upgrade(path, threads, tokens, inherit):
    """The connection, the reply's headers, and the descriptors."""
    connection = _connect(path)
    try:
        status, reply, fds = _ask(
            connection,
            path,
            f"POST /v1/activities?threads={threads:d}&tokens={tokens:d}&inherit={int(bool(inherit))} HTTP/1.1\r\n"
            "Connection: Upgrade\r\nUpgrade: tailcam-activities\r\nContent-Length: 0",
        )
    except BaseException:
        connection.close()
        raise
    if status == 101:
        return connection, reply[0], fds
    for fd in fds:
        os.close(fd)
    connection.close()
    raise _refusal(status, reply)


def _sizes(headers):
    version = _number(headers, "Tailcam-Abi")
    if version != _ABI:
        raise Error(f"the daemon speaks version {version} of activities, and this module {_ABI}: install its tailcam.py")
    threads, tokens = _number(headers, "Tailcam-Threads"), _number(headers, "Tailcam-Tokens")
    if not _WINDOW <= threads <= 4096 or threads & threads - 1 or not 1 <= tokens <= 131072:
        raise Error("the daemon's reply makes no sense")
    pairs = _number(headers, "Tailcam-Attributes")  # an older daemon has none
    if pairs > 65535:
        raise Error("the daemon's reply makes no sense")
    return threads, tokens, pairs


def _live():
    return _open_handle and _open_handle() or None


def _before_fork():
    handle = _live()
    if handle is not None:
        handle._family.before_fork()


def _after_fork_in_parent():
    handle = _live()
    if handle is not None:
        handle._family.after_fork_in_parent()


def _after_fork_in_child():
    handle = _live()
    if handle is not None:
        handle._after_fork_in_child()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
