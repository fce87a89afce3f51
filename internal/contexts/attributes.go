package contexts

import (
	"strings"
	"sync"
	"time"

	"github.com/tailcam/tailcam/internal/process"
)

// KeysFunc finds which of the wanted names the attributes of a process have, by their
// numbers; empty: none of them. It takes at most some seconds.
type KeysFunc func(pid int, wanted []string) ([]string, process.Image, error)

// Limits of Attributes.
const (
	maxPrograms = 512              // whose keys are remembered
	keysAgain   = time.Second      // after which a new key is looked for
	keysFailed  = 10 * time.Second // the same of a program without any
)

// Attributes names the attributes of threads' contexts. A nil one names none. Its methods may
// be called from any goroutine.
type Attributes struct {
	wanted []string
	find   KeysFunc

	mu    sync.Mutex
	known map[program]*keys
}

// program is one that runs, or ran, in a process.
type program struct {
	pid   int
	image process.Image
}

// keys are the names of a program's attributes. They become more, and never others.
type keys struct {
	mu    sync.Mutex
	names []string
	due   time.Time // before that they are not read again
}

// NewAttributes returns what names attributes that are wanted; nil if none are.
func NewAttributes(wanted []string, find KeysFunc) *Attributes {
	if len(wanted) == 0 {
		return nil
	}
	return &Attributes{wanted: wanted, find: find, known: map[program]*keys{}}
}

// Named returns the wanted ones of the attributes that a thread of a process has published,
// while it ran the program of that image. data is the process's word.
func (a *Attributes) Named(pid int, image process.Image, data []byte) map[string]string {
	if a == nil {
		return nil
	}
	values := ParseAttributes(data)
	if len(values) == 0 {
		return nil
	}
	most := 0
	for n := range values {
		most = max(most, int(n))
	}
	var named map[string]string
	for n, name := range a.keysOf(program{pid, image}, most) {
		value, ok := values[byte(n)]
		if name == "" || !ok {
			continue
		}
		if named == nil {
			named = map[string]string{}
		}
		named[name] = strings.ToValidUTF8(string(value), "\uFFFD")
	}
	return named
}

// Wanted returns those of a program's own attributes that are wanted; nil: none.
func (a *Attributes) Wanted(attributes map[string]string) (wanted map[string]string) {
	if a == nil {
		return nil
	}
	for _, name := range a.wanted {
		if value, ok := attributes[name]; ok {
			if wanted == nil {
				wanted = map[string]string{}
			}
			wanted[name] = value
		}
	}
	return wanted
}

// keysOf returns the names of a program's attributes up to that number, if it has so many. It
// reads them from its process if they are not known; others wait for that.
func (a *Attributes) keysOf(p program, most int) []string {
	k := a.entry(p)
	k.mu.Lock()
	defer k.mu.Unlock()
	if most < len(k.names) || time.Now().Before(k.due) {
		return k.names
	}
	found, image, err := a.find(p.pid, a.wanted)
	if err != nil || image != p.image || len(found) > maxKeys {
		k.due = time.Now().Add(keysFailed)
		return k.names
	}
	k.names, k.due = found, time.Now().Add(keysAgain)
	return k.names
}

func (a *Attributes) entry(p program) *keys {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.known[p]
	if k == nil {
		if len(a.known) >= maxPrograms {
			clear(a.known)
		}
		k = &keys{}
		a.known[p] = k
	}
	return k
}

const maxKeys = 256 // a number is one byte

// ParseAttributes returns the values of attributes by the numbers of their keys, as a record
// of OTEP 4947 has them one after the other: a number, a length, the value. The last one of a
// number counts. What does not fit ends it. Values are parts of data.
func ParseAttributes(data []byte) map[byte][]byte {
	const head = 2
	values := map[byte][]byte{}
	for len(data) >= head {
		key, length := data[0], int(data[1])
		if data = data[head:]; length > len(data) {
			break
		}
		values[key] = data[:length:length]
		data = data[length:]
	}
	return values
}
