package tailcam

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/tailcam/tailcam/bpf/abi"
	"github.com/tailcam/tailcam/test/support/activitypeer"
)

// open opens activities of a peer, whose accounts nobody writes.
func open(t testing.TB) (*Handle, *activitypeer.Peer) {
	t.Helper()
	p := activitypeer.Start(t)
	h, err := Open(p.Path, nil)
	assert.NilError(t, err)
	t.Cleanup(h.Close)
	return h, p
}

// TestNames: Costs has the values of the kernel side, in its order.
func TestNames(t *testing.T) {
	costs := reflect.TypeFor[Costs]()
	assert.Equal(t, costs.NumField(), abi.ActivityValues)
	assert.Equal(t, unsafe.Sizeof(Costs{}), unsafe.Sizeof(numbers{}))
	for name, number := range map[string]int{
		"cpu_ns": abi.ActivityCpuNs, "blocked_other_ns": abi.ActivityBlockedOtherNs, "syscalls": abi.ActivitySyscalls,
		"cache_misses": abi.ActivityCacheMisses, "tcp_bytes_sent": abi.ActivityTcpBytesSent, "work_items": abi.ActivityWorkItems,
		"cache_misses_hw": abi.ActivityCacheMissesHw, "cpu_kernel_ns": abi.ActivityCpuKernelNs,
		"runnable_stolen_ns": abi.ActivityRunnableStolenNs,
	} {
		assert.Check(t, is.Equal(costs.Field(number).Tag.Get("json"), name))
	}
}

// TestNil: a program without a daemon goes on with nil.
func TestNil(t *testing.T) {
	h, err := Open(t.TempDir()+"/none", nil)
	assert.ErrorContains(t, err, `start it with "sudo tailcam run"`)
	assert.Assert(t, h == nil)
	th := h.Thread()
	token := h.Token("request")
	assert.Check(t, th.Switch(token))
	assert.Check(t, !h.SetValue(token, 1) && !h.SetText(token, "x") && !h.SetTrace(token, [16]byte{1}, [8]byte{1}))
	_, ok := h.End(token)
	assert.Check(t, !ok)
	assert.Check(t, is.Equal(th.Current(), Token(0)))
	assert.Check(t, is.Equal(Merge(h.Accounts()), Account{}))
	assert.Check(t, is.Equal(h.Stats(), Stats{}))
	th.Release()
	h.Close()
}

// TestBadReplies: none is believed, none leaves anything open.
func TestBadReplies(t *testing.T) {
	json := func(status, body string) string {
		return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
	}
	upgrade := "HTTP/1.1 101 Switching Protocols\r\nTailcam-Abi: %d\r\nTailcam-Threads: %d\r\nTailcam-Tokens: %d\r\n\r\n"
	for reply, want := range map[string]string{
		json("503 Service Unavailable", `{"error":"activities are off"}`): "activities are off",
		json("404 Not Found", "404 page not found"):                       "404 Not Found: is another program listening there",
		"SSH-2.0-OpenSSH_9.2\r\n":                                         "malformed HTTP response",
		fmt.Sprintf(upgrade, 99, 64, 64):                                  "version 99 of activities",
		fmt.Sprintf(upgrade, abi.ActivityAbi, 64, 64):                     "makes no sense", // without maps
		fmt.Sprintf(upgrade, abi.ActivityAbi, 65, 64):                     "makes no sense",
		fmt.Sprintf(upgrade, abi.ActivityAbi, 64, 1<<30):                  "makes no sense",
		strings.Repeat("x", 1<<20):                                        "read reply",
	} {
		p := activitypeer.Start(t, activitypeer.WithReply(reply))
		h, err := Open(p.Path, nil)
		assert.Check(t, is.ErrorContains(err, want))
		assert.Check(t, h == nil)
	}
	for _, maps := range []int{0, 1, 3} {
		p := activitypeer.Start(t, activitypeer.WithMaps(maps))
		_, err := Open(p.Path, nil)
		assert.Check(t, is.ErrorContains(err, "makes no sense"))
	}
	p := activitypeer.Start(t, func(p *activitypeer.Peer) {
		p.Tokens, p.Threads = abi.ActivityMaxTokens, 4096 // of maps that are smaller
	})
	h, err := Open(p.Path, nil)
	if err == nil { // memory is mapped beyond its end, which BPF maps refuse
		h.Close()
	}
}

// TestMute: a daemon that does not answer.
func TestMute(t *testing.T) {
	l, err := net.Listen("unix", t.TempDir()+"/s")
	assert.NilError(t, err)
	defer l.Close()
	conn, err := dial(l.Addr().String())
	assert.NilError(t, err)
	defer conn.Close()
	assert.NilError(t, conn.SetDeadline(time.Now()))
	_, err = bufio.NewReader(&descriptors{conn: conn}).ReadByte()
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// TestTrigger: a trigger asks for a snapshot, and has its id.
func TestTrigger(t *testing.T) {
	p := activitypeer.Start(t, activitypeer.WithReply("HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{\"id\":\"42-api\"}"))
	id, err := Trigger(p.Path, `it is "slow"`)
	assert.NilError(t, err)
	assert.Equal(t, id, "42-api")
	assert.Equal(t, <-p.Requests, `POST /v1/trigger {"reason":"it is \"slow\"","no_wait":true}`)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, err = TriggerThread(p.Path, "slow", &TriggerOptions{Last: 800 * time.Millisecond, After: time.Second})
	assert.NilError(t, err)
	assert.Equal(t, <-p.Requests, fmt.Sprintf(`POST /v1/trigger {"reason":"slow","no_wait":true,"self":true,"tid":%d,"last":"800ms","after":"1s"}`, syscall.Gettid()))
	p = activitypeer.Start(t, activitypeer.WithReply("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 20\r\n\r\n{\"error\":\"too many\"}"))
	_, err = Trigger(p.Path, "")
	assert.ErrorContains(t, err, "too many")
}

// TestTokens: indexes are used again with another generation; full is counted, and over.
func TestTokens(t *testing.T) {
	h, p := open(t)
	_, err := Open(p.Path, nil)
	assert.ErrorIs(t, err, ErrOpen)
	var tokens []Token
	for range p.Tokens {
		tokens = append(tokens, h.Token("request"))
	}
	assert.Check(t, !slices.Contains(tokens, 0))
	assert.Check(t, is.Len(slices.Compact(slices.Sorted(slices.Values(tokens))), int(p.Tokens)))
	assert.Check(t, is.Equal(h.Token("one more"), Token(0)))
	assert.Check(t, is.Equal(h.Stats().TokensFull, uint64(1)))

	_, ok := h.End(tokens[7])
	assert.Check(t, ok)
	_, ok = h.End(tokens[7])
	assert.Check(t, !ok, "it has ended")
	again := h.Token("again")
	assert.Check(t, again.index() == tokens[7].index() && again != tokens[7])
	_, ok = h.Read(tokens[7])
	assert.Check(t, !ok)
	th := h.Thread()
	defer th.Release()
	assert.Check(t, !th.Switch(tokens[7]) && th.Current() == 0)
	assert.Check(t, is.Equal(h.Stats().Stale, uint64(1)))
	for _, bad := range []Token{1, 1 << 32, ^Token(0), tokens[0] + 1<<32, 1<<32 | Token(h.first+h.tokens)} {
		assert.Check(t, !th.Switch(bad) && !h.SetValue(bad, 1))
	}
}

// TestData: what a program attaches to a token comes back with its account.
func TestData(t *testing.T) {
	h, _ := open(t)
	a, b := h.Token(strings.Repeat("long", 100)), h.Token("cart")
	assert.Check(t, h.SetValue(a, 42) && h.SetText(a, "a customer of them") && h.SetTrace(a, [16]byte{15: 1}, [8]byte{7: 2}))
	account, ok := h.Read(a)
	assert.Assert(t, ok)
	assert.Check(t, is.Equal(account.Name, strings.Repeat("long", 8)[:31]))
	assert.Check(t, is.Equal(account.Text, "a customer of t"))
	assert.Check(t, is.Equal(account.Value, uint64(42)))
	assert.Check(t, is.Equal(account.TraceID, "00000000000000000000000000000001"))
	assert.Check(t, is.Equal(account.SpanID, "0000000000000002"))
	assert.Check(t, is.DeepEqual(slices.Collect(Map(h.Accounts(), func(a Account) Token { return a.Token })), []Token{a, b}))
	only := slices.Collect(Filter(h.Accounts(), func(a Account) bool { return a.Name == "cart" }))
	assert.Check(t, is.Len(only, 1))
	sum := Fold(h.Accounts(), uint64(0), func(n uint64, a Account) uint64 { return n + a.Value })
	assert.Check(t, is.Equal(sum, uint64(42)))
}

// TestAttributes: a token has few, a process few different ones, and what is too much is counted.
func TestAttributes(t *testing.T) {
	h, _ := open(t)
	has := func(token Token) string {
		var list []string
		for _, number := range h.element(token.index()).Attributes {
			if number != 0 {
				p := h.pair(uint32(number))
				list = append(list, text(p.Key[:])+"="+text(p.Value[:]))
			}
		}
		return strings.Join(list, " ")
	}
	a, b := h.Token("a"), h.Token("b")
	assert.Check(t, h.SetAttribute(a, "http.route", "/cart") && h.SetAttribute(b, "http.route", "/cart"))
	assert.Check(t, is.Equal(h.element(a.index()).Attributes[0], h.element(b.index()).Attributes[0]), "written once")
	assert.Check(t, h.SetAttribute(a, "tenant", "gold") && h.SetAttribute(a, "http.route", "/pay"))
	assert.Check(t, is.Equal(has(a), "http.route=/pay tenant=gold"))
	assert.Check(t, h.SetAttribute(a, "http.route", "") && h.SetAttribute(a, "never", ""))
	assert.Check(t, is.Equal(has(a), "tenant=gold"))
	assert.Check(t, h.SetAttribute(a, strings.Repeat("k", 99), strings.Repeat("v", 99)))
	assert.Check(t, is.Equal(has(a), strings.Repeat("k", 31)+"="+strings.Repeat("v", 91)+" tenant=gold"))
	assert.Check(t, !h.SetAttribute(a, "", "no key") && !h.SetAttribute(0, "a", "b") && (*Handle)(nil).SetAttribute(a, "a", "b") == false)
	assert.Check(t, is.Equal(h.Stats().AttributesFull, uint64(0)))
	assert.Check(t, h.SetAttribute(a, "3", "x") && h.SetAttribute(a, "4", "x"))
	assert.Check(t, !h.SetAttribute(a, "5", "x"), "a token has four")
	h.End(a)
	a = h.Token("a")
	assert.Check(t, is.Equal(has(a), ""), "of the one before")
	for i := range 20 { // 16 different ones
		h.SetAttribute(a, "n", strconv.Itoa(i))
	}
	assert.Check(t, is.Equal(h.Stats().AttributesFull, uint64(1+20-10)))
	assert.Check(t, is.Equal(has(b), "http.route=/cart"))
}

// TestSlow: the daemon hears of what has lasted too long, once.
func TestSlow(t *testing.T) {
	h, p := open(t)
	<-p.Requests
	h.End(h.Token("fast"))
	p.Header(t).SlowNs = 1
	h.End(h.Token("slow"))
	assert.Equal(t, <-p.Requests, "message of 8 bytes")
	assert.Equal(t, len(p.Requests), 0)
	assert.Equal(t, h.Stats().Untold, uint64(0))
}

// TestThreads: all threads find a slot of their own, and wall time is what they carried.
func TestThreads(t *testing.T) {
	h, _ := open(t)
	token := h.Token("shared")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			th := h.Thread()
			defer th.Release()
			for range 1000 {
				th.Switch(token)
				h.Read(token)
				th.Switch(0)
			}
		})
	}
	all.Wait()
	a, ok := h.End(token)
	assert.Check(t, ok && a.WallNS > 0 && a.WallNS <= 8*a.ElapsedNS)
	assert.Check(t, is.Equal(a.WallNS, a.CPUNS), "no kernel side interrupts")
	assert.Check(t, is.Equal(a.UnexplainedNS, uint64(0)))
}

// TestClock: the counter says what the kernel's clock says, between readings of both.
func TestClock(t *testing.T) {
	c := clock{tsc: counts()}
	if !c.tsc {
		t.Log("the kernel's clock is not the time stamp counter")
	}
	worst := int64(0)
	for end := nanotime() + 50_000_000; nanotime() < end; {
		before, now, after := nanotime(), c.now(), nanotime()
		if after-before < 1000 {
			worst = max(worst, int64(before)-int64(now), int64(now)-int64(after))
		}
	}
	assert.Check(t, worst < 1000, "%d ns apart", worst)
}

// TestExample: the one of the documentation runs with a daemon, and without.
func TestExample(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "run", activitypeer.Example(t, "go", "main.go")).CombinedOutput()
	assert.Check(t, err)
	assert.Check(t, is.Equal(strings.Count(string(out), " ms blocked\n"), 4), "%s", out)
}

// TestTokensAtOnce: no two goroutines have the same token, and all are free at the end.
func TestTokensAtOnce(t *testing.T) {
	h, p := open(t)
	owners := make([]atomic.Int32, 1+p.Threads+p.Tokens)
	var wg sync.WaitGroup
	for id := range int32(4) {
		wg.Go(func() {
			var own [40]Token // 160 of 128
			give := func(token Token) {
				assert.Check(t, owners[token.index()].CompareAndSwap(id+1, 0))
				_, ok := h.End(token)
				assert.Check(t, ok)
			}
			for i := range 4000 {
				at := &own[i*7%len(own)]
				if *at != 0 {
					give(*at)
					*at = 0
				} else if *at = h.Token("request"); *at != 0 {
					assert.Check(t, owners[at.index()].CompareAndSwap(0, id+1))
				}
			}
			for _, token := range own {
				if token != 0 {
					give(token)
				}
			}
		})
	}
	wg.Wait()
	for range p.Tokens {
		assert.Check(t, h.Token("again") != 0)
	}
}

func BenchmarkSwitch(b *testing.B) {
	h, _ := open(b)
	th := h.Thread()
	defer th.Release()
	tokens := [2]Token{h.Token("one"), h.Token("other")}
	i := 0
	for b.Loop() {
		i++
		th.Switch(tokens[i&1])
	}
}
