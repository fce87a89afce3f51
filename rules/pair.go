package rules

import (
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

// Hook is one place that an event of a pair comes from.
type Hook struct {
	Kind     HookKind
	Name     string // tracepoint, function, symbol, or name of a usdt probe
	Category string // of a tracepoint; provider of a usdt probe
	Path     string // of the program or library
	Offset   uint64 // into the function
	Text     string // as it was written
	Pos      Position

	Key  []Field   // in place of the pair's own; nil: those
	When []Compare // besides those of the pair
}

// Returns reports whether the hook is at the end of a function, where its
// value is known.
func (h *Hook) Returns() bool { return h.Kind == FExit || h.Kind == KRetProbe || h.Kind == URetProbe }

// String is the hook as it was written.
func (h Hook) String() string { return h.Text }

// OnDuplicate says what an entry does whose key is pending already.
type OnDuplicate string

// Policies for duplicates, in the order of the kernel side's numbers.
const (
	Restart OnDuplicate = "restart" // it takes the place of the older one
	Keep    OnDuplicate = "keep"    // it is left out
	Count   OnDuplicate = "count"   // it is nested: as many exits end the work
)

// Duplicates lists them.
var Duplicates = []OnDuplicate{Restart, Keep, Count}

// KeyPart is one part of what makes events belong together. The names of its
// fields differ where the hooks name them differently.
type KeyPart struct {
	Name                string
	Entry, Exit, Cancel Field
}

// As says how a label is shown.
type As string

// Ways to show a label.
const (
	AsNumber As = "number"
	AsHex    As = "hex"
	AsIPv4   As = "ipv4"   // four bytes in the order of the network
	AsIPv6   As = "ipv6"   // sixteen bytes
	AsPort   As = "port"   // two bytes in the order of the network
	AsDev    As = "dev"    // device number of the kernel: major and minor
	AsString As = "string" // what stands there, up to a NUL, or where a pointer points to
	AsSymbol As = "symbol" // the kernel function or variable at an address
)

// Shapes lists the ways to show a label.
var Shapes = []As{AsNumber, AsHex, AsIPv4, AsIPv6, AsPort, AsDev, AsString, AsSymbol}

// Label is a field that outliers carry.
type Label struct {
	Name   string
	Field  Field
	AtExit bool
	As     As // empty: by its type
	User   bool
}

// PairSpec is what only rules of track pair have.
type PairSpec struct {
	Entry, Exit, Cancel []Hook
	Key                 []KeyPart
	OnDuplicate         OnDuplicate
	EntryWhen, ExitWhen []Compare
	Labels              []Label
	ForgetAfter         time.Duration // begun work that is older has no exit; 0: see Forget
}

// Forget is the age at which begun work is taken for left over, and its place is
// freed: what the rule says, or ten minutes, but twice its limits at least.
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

const hookAllowed = "tracepoint:CATEGORY:NAME, raw_tracepoint:NAME, fentry:FUNCTION, fexit:FUNCTION, kprobe:FUNCTION, " +
	"kretprobe:FUNCTION, uprobe:PATH:SYMBOL, uretprobe:PATH:SYMBOL, usdt:PATH:PROVIDER:NAME"

// ParseHook reads a hook. Its errors say what is wrong, without the place.
func ParseHook(text string) (Hook, error) {
	h := Hook{Text: text}
	if len(text) > maxHookLen || strings.ContainsRune(text, 0) {
		return h, fmt.Errorf("too long, or with a NUL in it")
	}
	kind, rest, ok := strings.Cut(text, ":")
	h.Kind = HookKind(kind)
	var names []string
	for _, k := range HookKinds {
		names = append(names, string(k))
	}
	if !ok || !contains(names, kind) {
		return h, fmt.Errorf("%s", Unknown("kind of hook", kind, names))
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
		return h, fmt.Errorf("%q is not complete", cut(text))
	case h.Path != "" && !path.IsAbs(h.Path):
		return h, fmt.Errorf("%q is not an absolute path", cut(h.Path))
	case h.Path == "" && !isName(h.Name):
		return h, fmt.Errorf("%q is no name of the kernel", cut(h.Name))
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

// isName reports whether s may name something of the kernel: isra.0 and the
// like are parts of functions' names.
func isName(s string) bool {
	for i := range len(s) {
		if !isNameByte(s[i]) && s[i] != '.' {
			return false
		}
	}
	return s != "" && len(s) <= 127
}
