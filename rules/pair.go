package rules

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
)

// HookKind is a kind of event of the kernel or of a program.
type HookKind string

// Kinds of hooks that pairs may name.
const (
	Tracepoint    HookKind = "tracepoint"     // CATEGORY:NAME
	RawTracepoint HookKind = "raw_tracepoint" // NAME
	FEntry        HookKind = "fentry"         // FUNCTION
	FExit         HookKind = "fexit"          // FUNCTION
	KProbe        HookKind = "kprobe"         // FUNCTION, FUNCTION+OFFSET
	KRetProbe     HookKind = "kretprobe"      // FUNCTION
	UProbe        HookKind = "uprobe"         // PATH:SYMBOL, PATH:SYMBOL+OFFSET
	URetProbe     HookKind = "uretprobe"      // PATH:SYMBOL
	USDT          HookKind = "usdt"           // PATH:PROVIDER:NAME
)

// HookKinds lists them.
var HookKinds = []HookKind{Tracepoint, RawTracepoint, FEntry, FExit, KProbe, KRetProbe, UProbe, URetProbe, USDT}

// Hook is a source of events of a pair.
type Hook struct {
	Kind     HookKind
	Name     string // tracepoint, function, symbol, or name of a usdt probe
	Category string // of a tracepoint; provider of a usdt probe
	Path     string // of the program or library
	Offset   uint64 // into the function
	Text     string // as written
	Pos      Position

	Key  []Field   // nil: the pair's
	When []Compare // in addition to the pair's
}

// Returns reports whether the hook is at a function's return, where ret is known.
func (h *Hook) Returns() bool { return h.Kind == FExit || h.Kind == KRetProbe || h.Kind == URetProbe }

// String returns the hook as written.
func (h Hook) String() string { return h.Text }

// OnDuplicate is the policy for an entry whose key is already pending.
type OnDuplicate string

// Policies for duplicates, in the order of the kernel side's numbers.
const (
	Restart OnDuplicate = "restart" // it replaces the older one
	Keep    OnDuplicate = "keep"    // it is ignored
	Count   OnDuplicate = "count"   // it is nested: the same number of exits end the work
)

// Duplicates lists them.
var Duplicates = []OnDuplicate{Restart, Keep, Count}

// KeyPart is one part of the key. Its fields differ if the hooks name them
// differently.
type KeyPart struct {
	Name                string
	Entry, Exit, Cancel Field
}

// As is how a label is formatted.
type As string

// Formats of labels.
const (
	AsNumber As = "number"
	AsHex    As = "hex"
	AsIPv4   As = "ipv4"   // four bytes in network order
	AsIPv6   As = "ipv6"   // sixteen bytes
	AsPort   As = "port"   // two bytes in network order
	AsDev    As = "dev"    // device number of the kernel: major and minor
	AsString As = "string" // NUL-terminated, in place or behind a pointer
	AsSymbol As = "symbol" // the kernel function or variable at an address
)

// Shapes lists the formats of labels.
var Shapes = []As{AsNumber, AsHex, AsIPv4, AsIPv6, AsPort, AsDev, AsString, AsSymbol}

// Label is a field that outliers include.
type Label struct {
	Name   string
	Field  Field
	AtExit bool
	As     As // empty: by its type
	User   bool
}

// PairSpec has the keys of track pair.
type PairSpec struct {
	Entry, Exit, Cancel []Hook
	Key                 []KeyPart
	OnDuplicate         OnDuplicate
	EntryWhen, ExitWhen []Compare
	Labels              []Label
	Activity            string        // name of the activity that the entry begins in its thread, and the exit ends; "": none
	ForgetAfter         time.Duration // drop pending work that is older; 0: see Forget
}

// Forget is the age at which pending work is dropped and its slot released: the
// rule's forget_after, or ten minutes, but at least twice its limits.
func (r *Rule) Forget() time.Duration {
	age := 10 * time.Minute
	if r.Pair != nil && r.Pair.ForgetAfter > 0 {
		age = r.Pair.ForgetAfter
	}
	for i := range r.Overrides {
		age = max(age, 2*r.Overrides[i].Threshold, 2*r.Overrides[i].Timeout)
	}
	return max(age, 2*r.Threshold, 2*r.Timeout)
}

// Limits of one pair; see KernelLimits.
const (
	maxHooks      = 16 // of one list
	maxKeyParts   = 3
	maxLabels     = 4
	maxConditions = 4
	maxLabelName  = 32
	maxHookLen    = 4096 + 256
)

const hookAllowed = "tracepoint:CATEGORY:NAME, raw_tracepoint:NAME, fentry:FUNCTION, fexit:FUNCTION, " +
	"kprobe:FUNCTION, kretprobe:FUNCTION, uprobe:PATH:SYMBOL, uretprobe:PATH:SYMBOL, usdt:PATH:PROVIDER:NAME"

// ParseHook parses a hook. Its errors do not include the position.
func ParseHook(text string) (Hook, error) {
	h := Hook{Text: text}
	if len(text) > maxHookLen || strings.ContainsRune(text, 0) {
		return h, errors.New("hook is too long, or contains a NUL")
	}
	kind, rest, ok := strings.Cut(text, ":")
	h.Kind = HookKind(kind)
	var names []string
	for _, k := range HookKinds {
		names = append(names, string(k))
	}
	if !ok || !contains(names, kind) {
		return h, errors.New(Unknown("kind of hook", kind, names))
	}
	switch h.Kind {
	case Tracepoint:
		h.Category, h.Name, ok = strings.Cut(rest, ":")
		ok = ok && isName(h.Category)
	case RawTracepoint, FEntry, FExit, KRetProbe:
		h.Name = rest
	case KProbe:
		h.Name, h.Offset, ok = cutOffset(rest)
	case UProbe, URetProbe:
		i := strings.LastIndexByte(rest, ':')
		if ok = i > 0; ok {
			h.Path = rest[:i]
			h.Name, h.Offset, ok = cutOffset(rest[i+1:])
		}
		ok = ok && (h.Kind == UProbe || h.Offset == 0)
	case USDT:
		head, name, both := cutLast(rest)
		h.Name = name
		h.Path, h.Category, ok = cutLast(head)
		ok = ok && both && isName(h.Category)
	}
	switch {
	case !ok || h.Name == "":
		return h, fmt.Errorf("incomplete hook %q", cut(text))
	case h.Path != "" && !path.IsAbs(h.Path):
		return h, fmt.Errorf("%q is not an absolute path", cut(h.Path))
	case h.Path == "" && !isName(h.Name):
		return h, fmt.Errorf("invalid kernel name %q", cut(h.Name))
	}
	return h, nil
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i <= 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

func cutOffset(s string) (name string, offset uint64, ok bool) {
	name, number, has := strings.Cut(s, "+")
	if !has {
		return name, 0, true
	}
	offset, err := strconv.ParseUint(number, 0, 31)
	return name, offset, err == nil
}

// isName reports whether s may be a name in the kernel; function names may contain
// dots, as in isra.0.
func isName(s string) bool {
	for i := range len(s) {
		if !isNameByte(s[i]) && s[i] != '.' {
			return false
		}
	}
	return s != "" && len(s) <= 127
}
