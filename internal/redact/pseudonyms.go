package redact

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Kind is a kind of names that Pseudonyms replaces.
type Kind string

// Kinds of names.
const (
	Users     Kind = "users"     // names and numbers of users
	Commands  Kind = "commands"  // names and titles of tasks and programs
	Arguments Kind = "arguments" // of command lines
	Files     Kind = "files"     // paths, and names of libraries that not every machine has
	Addresses Kind = "addresses" // of IPv4, IPv6 and Ethernet
	Hosts     Kind = "hosts"     // name and boot id of the machine
	Places    Kind = "places"    // cgroups, units, containers, pods and namespaces
	Labels    Kind = "labels"    // labels, keys and reasons, as programs and people gave them
	Functions Kind = "functions" // of programs, in user stacks
	// Others are texts that are of no known kind. They are always replaced, as are
	// passwords, keys and tokens.
	Others Kind = "others"
)

// Kinds lists the kinds that may be chosen.
var Kinds = []Kind{Users, Commands, Arguments, Files, Addresses, Hosts, Places, Labels, Functions}

// Usual are the kinds that are replaced unless others are asked for. Functions are not
// among them: they are what a stack explains.
var Usual = slices.DeleteFunc(slices.Clone(Kinds), func(k Kind) bool { return k == Functions })

// Count is how much of a kind was replaced.
type Count struct {
	Names int `json:"names"` // different ones
	Times int `json:"times"`
}

// Pseudonyms replaces names: the same name of a kind always becomes the same pseudonym,
// such as command-3. It is not safe for concurrent use.
type Pseudonyms struct {
	kinds   map[Kind]bool
	names   map[Kind]map[string]string
	issued  map[string]bool
	numbers map[uint64]uint64
	counts  map[Kind]*Count
	used    map[string]bool // pseudonyms that stand somewhere
	quiet   bool
	// words has what Text replaces by its first word.
	words   map[string][]known
	secrets Redactor
}

// known is a name to be found in text.
type known struct {
	name  string
	first int // where its first word begins
	kind  Kind
	with  string
}

// NewPseudonyms returns a Pseudonyms that replaces these kinds of names.
func NewPseudonyms(kinds []Kind) *Pseudonyms {
	p := &Pseudonyms{
		kinds: map[Kind]bool{Others: true}, names: map[Kind]map[string]string{}, issued: map[string]bool{}, numbers: map[uint64]uint64{},
		counts: map[Kind]*Count{}, used: map[string]bool{}, words: map[string][]known{},
	}
	for _, k := range kinds {
		p.kinds[k] = true
	}
	return p
}

// Summary lists what was replaced.
type Summary struct {
	Kinds    []Kind         `json:"kinds"`    // that were asked for
	Replaced map[Kind]Count `json:"replaced"` // kinds of which there was nothing are left out
	Secrets  int            `json:"secrets"`  // removed, as they looked like passwords, keys or tokens
	// FilesLeftOut is the number of files whose contents are not known: those of actions.
	FilesLeftOut int `json:"files_left_out"`
}

// Summary returns what was replaced so far.
func (p *Pseudonyms) Summary() *Summary {
	s := &Summary{Kinds: []Kind{}, Replaced: map[Kind]Count{}, Secrets: p.secrets.removed}
	for _, k := range Kinds {
		if p.kinds[k] {
			s.Kinds = append(s.Kinds, k)
		}
	}
	for k, c := range p.counts {
		s.Replaced[k] = *c
	}
	return s
}

// Replaces reports whether names of a kind are replaced.
func (p *Pseudonyms) Replaces(kind Kind) bool { return p.kinds[kind] }

// Name returns the pseudonym of a name of a kind that is replaced; otherwise the name
// without what Text replaces. The name of a task that is cut off after 15 bytes is the
// same as the whole one.
func (p *Pseudonyms) Name(kind Kind, name string) string {
	if name == "" || p.issued[name] {
		return name
	}
	if !p.kinds[kind] {
		return p.Text(name)
	}
	return p.count(kind, p.pseudonym(kind, name))
}

// Quietly does something that is not counted.
func (p *Pseudonyms) Quietly(do func()) {
	secrets := p.secrets.removed
	p.quiet = true
	do()
	p.quiet, p.secrets.removed = false, secrets
}

// Learn makes a name one that Text replaces.
func (p *Pseudonyms) Learn(kind Kind, name string) {
	if name != "" && p.kinds[kind] {
		p.pseudonym(kind, name)
	}
}

func (p *Pseudonyms) pseudonym(kind Kind, name string) string {
	name = string([]rune(name)) // as JSON has it
	if with, ok := p.names[kind][name]; ok {
		return with
	}
	if p.names[kind] == nil {
		p.names[kind] = map[string]string{}
	}
	one := strings.TrimSuffix(string(kind), "s")
	if kind == Addresses {
		one = "address"
	}
	with := fmt.Sprintf("%s-%d", one, len(p.names[kind])+1)
	p.names[kind][name] = with
	p.issued[with] = true
	p.learn(known{name: name, kind: kind, with: with})
	return with
}

// Known returns the pseudonym that a name already has; false: none.
func (p *Pseudonyms) Known(kind Kind, name string) (with string, ok bool) {
	with, ok = p.names[kind][name]
	return with, ok
}

// count returns the pseudonym.
func (p *Pseudonyms) count(kind Kind, with string) string {
	if p.quiet {
		return with
	}
	c := p.counts[kind]
	if c == nil {
		c = &Count{}
		p.counts[kind] = c
	}
	c.Times++
	if !p.used[with] {
		p.used[with] = true
		c.Names++
	}
	return with
}

// learn makes a name one that Text finds.
func (p *Pseudonyms) learn(k known) {
	k.first = strings.IndexFunc(k.name, isWord)
	word := ""
	if k.first >= 0 {
		word = firstWord(k.name[k.first:])
	}
	if word == "" && len(k.name) < least {
		return // "-" is no name that anybody would recognise
	}
	list := p.words[word]
	at, _ := slices.BinarySearchFunc(list, k, func(a, b known) int { return len(b.name) - len(a.name) })
	p.words[word] = slices.Insert(list, at, k)
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

func firstWord(s string) string {
	if i := strings.IndexFunc(s, func(r rune) bool { return !isWord(r) }); i >= 0 {
		return s[:i]
	}
	return s
}

var (
	homes = regexp.MustCompile(`(/(?:home|Users)/)([^/\s"':,;()<>]+)`)
	ipv4  = regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}\b`)
	// colons are words that may be, or end with, an IPv6 or Ethernet address.
	colons   = regexp.MustCompile(`[0-9A-Za-z_.]*:[0-9A-Za-z_.]*:[0-9A-Za-z_:.]*`)
	ethernet = regexp.MustCompile(`^(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}$`)
)

// Text returns text without the names that Name was given so far, where they are whole
// words, without names of users in paths and addresses, if these are replaced, and without
// what looks like a secret.
func (p *Pseudonyms) Text(s string) string {
	return p.secrets.apply(shapes, p.secrets.apply(locations[:1], p.Symbol(s)))
}

// Symbol is Text for names of functions, in which nothing looks like a secret.
func (p *Pseudonyms) Symbol(s string) string {
	s = p.replaceKnown(strings.ToValidUTF8(s, "\uFFFD"))
	if p.kinds[Users] {
		s = replaceAll(homes, s, func(m []string) string {
			if p.issued[m[2]] {
				return m[0]
			}
			return m[1] + p.Name(Users, m[2])
		})
	}
	if p.kinds[Addresses] {
		s = ipv4.ReplaceAllStringFunc(s, func(a string) string { return p.Name(Addresses, a) })
		s = colons.ReplaceAllStringFunc(s, p.address)
	}
	return s
}

// address replaces the address that a word ends with.
func (p *Pseudonyms) address(word string) string {
	word, dots := strings.TrimRight(word, "."), word[len(strings.TrimRight(word, ".")):]
	for i := 0; i < len(word); {
		if a := word[i:]; isAddress(a) {
			return word[:i] + p.Name(Addresses, a) + dots
		}
		next := strings.IndexByte(word[i:], ':')
		if next < 0 {
			break
		}
		i += next + 1
	}
	return word + dots
}

// isAddress refuses names such as dead::beef, which C++ has, too.
func isAddress(s string) bool {
	if ethernet.MatchString(s) {
		return true
	}
	a, err := netip.ParseAddr(s)
	return err == nil && !a.IsUnspecified() && strings.ContainsFunc(s, unicode.IsDigit)
}

// Number returns another number for each one but 0, as Name does for names.
func (p *Pseudonyms) Number(kind Kind, n uint64) uint64 {
	if n == 0 || !p.kinds[kind] {
		return n
	}
	with, ok := p.numbers[n]
	if !ok {
		with = uint64(len(p.numbers)) + 1
		p.numbers[n] = with
	}
	p.count(kind, fmt.Sprint(with))
	return with
}

// replaceAll is ReplaceAllStringFunc with submatches.
func replaceAll(re *regexp.Regexp, s string, with func([]string) string) string {
	return re.ReplaceAllStringFunc(s, func(found string) string { return with(re.FindStringSubmatch(found)) })
}

// replaceKnown replaces the names that are known where they are whole words, the longest
// first.
func (p *Pseudonyms) replaceKnown(s string) string {
	var out strings.Builder
	done := 0
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if !isWord(r) {
			i += size
			continue
		}
		word := firstWord(s[i:])
		k := p.find(s, done, i, p.words[word])
		if k == nil {
			i += len(word)
			continue
		}
		p.count(k.kind, k.with)
		begin := i - k.first
		out.WriteString(s[done:begin])
		out.WriteString(k.with)
		i = begin + len(k.name)
		done = i
	}
	out.WriteString(s[done:])
	s = out.String()
	for _, k := range p.words[""] { // no letters in them
		if strings.Contains(s, k.name) {
			p.count(k.kind, k.with)
			s = strings.ReplaceAll(s, k.name, k.with)
		}
	}
	return s
}

// find returns the first of the names whose first word begins at i.
func (p *Pseudonyms) find(s string, done, i int, list []known) *known {
	for j := range list {
		k := &list[j]
		begin := i - k.first
		if !p.kinds[k.kind] || begin < done || !strings.HasPrefix(s[begin:], k.name) {
			continue
		}
		last, _ := utf8.DecodeLastRuneInString(k.name)
		next, size := utf8.DecodeRuneInString(s[begin+len(k.name):])
		if size == 0 || !isWord(last) || !isWord(next) {
			return k
		}
	}
	return nil
}
