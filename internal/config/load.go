package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"

	"github.com/tailcam/tailcam/rules"
)

const configEnv = "TAILCAM_CONFIG"

// AddFlags adds --config and a flag for every key: snapshots.min_free is
// --snapshots-min-free.
func AddFlags(flags *pflag.FlagSet) {
	flags.String("config", "", "configuration `file` (default "+DefaultFile+" if it exists)")
	for _, k := range keys() {
		if k.list {
			flags.StringSlice(k.flag(), k.def, k.usage)
		} else {
			flags.String(k.flag(), k.def[0], k.usage)
		}
	}
}

// Default is the configuration without a file, environment or flags.
func Default() Config {
	var c Config
	for _, k := range keys() {
		k.set(&c, k.def)
	}
	return c
}

// Load reads the configuration: a flag overrides an environment variable, that the
// file, and that the default. Flags may be nil, and need not have all of AddFlags.
// The error is a rules.Errors with the errors of all sources, even of overridden
// values.
func Load(flags *pflag.FlagSet) (Config, error) {
	if flags == nil {
		flags = pflag.NewFlagSet("", pflag.ContinueOnError)
	}
	all := keys()
	v := viper.New()
	var c Config
	var errs rules.Errors
	for _, k := range all {
		v.SetDefault(k.name, k.def)
	}

	c.File = configFile(flags)
	if c.File != "" {
		values, wrong := readFile(c.File, all)
		errs = append(errs, wrong...)
		if err := v.MergeConfigMap(values); err != nil {
			return Config{}, fmt.Errorf("merge %s: %w", c.File, err)
		}
	}

	errs = append(errs, checkEnviron(all)...)
	for _, k := range all {
		if err := v.BindEnv(k.name, k.env()); err != nil {
			return Config{}, fmt.Errorf("bind %s: %w", k.env(), err)
		}
	}

	for _, k := range all {
		flag := flags.Lookup(k.flag())
		if flag == nil {
			continue
		}
		if err := v.BindPFlag(k.name, flag); err != nil {
			return Config{}, fmt.Errorf("bind --%s: %w", flag.Name, err)
		}
		if flag.Changed {
			errs = append(errs, k.check(rules.Position{File: "--" + flag.Name}, values(v.Get(k.name), k.list))...)
		}
	}
	if len(errs) > 0 {
		return Config{}, errs
	}

	for _, k := range all {
		errs = append(errs, k.apply(&c, rules.Position{File: k.name}, values(v.Get(k.name), k.list))...)
	}
	if len(errs) > 0 {
		return Config{}, errs
	}
	return c, nil
}

// configFile is the file to read: the given one, or the default one if it exists.
func configFile(flags *pflag.FlagSet) string {
	if flag := flags.Lookup("config"); flag != nil && flag.Changed {
		return flag.Value.String()
	}
	if file := os.Getenv(configEnv); file != "" {
		return file
	}
	if _, err := os.Stat(DefaultFile); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return DefaultFile
}

// values converts a value of viper to the strings that keys take. A string for a
// list comes from the environment and is separated by commas.
func values(v any, list bool) []string {
	switch v := v.(type) {
	case []string:
		return v
	case string:
		if list {
			return strings.Split(v, ",")
		}
		return []string{v}
	}
	return []string{fmt.Sprint(v)}
}

// check validates a value.
func (k *key) check(pos rules.Position, v []string) rules.Errors {
	return k.apply(new(Config), pos, v)
}

// apply stores a value in c.
func (k *key) apply(c *Config, pos rules.Position, v []string) rules.Errors {
	fail := func(msg string) rules.Errors {
		return rules.Errors{{Pos: pos, Msg: msg, Allowed: k.allowed}}
	}
	if len(v) == 0 || v[0] == "" {
		return fail(k.name + " is empty")
	}
	if wrong := k.set(c, v); wrong != "" {
		return fail(fmt.Sprintf("%s %q %s", k.name, strings.Join(v, ","), wrong))
	}
	return nil
}

// checkEnviron finds unknown TAILCAM_ variables and invalid values of known ones. An
// empty variable counts as not set.
func checkEnviron(all []key) rules.Errors {
	byName := make(map[string]key)
	names := []string{configEnv}
	for _, k := range all {
		byName[k.env()] = k
		names = append(names, k.env())
	}
	environ := os.Environ()
	slices.Sort(environ)
	var errs rules.Errors
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "TAILCAM_") || name == configEnv || value == "" {
			continue
		}
		if k, ok := byName[name]; ok {
			errs = append(errs, k.check(rules.Position{File: name}, values(value, k.list))...)
			continue
		}
		errs = append(errs, rules.Error{
			Pos:     rules.Position{File: "environment"},
			Msg:     rules.Unknown("variable", name, names),
			Allowed: configEnv + ", or TAILCAM_ and a key, such as TAILCAM_RECORDER_SIZE",
		})
	}
	return errs
}

// readFile reads a file into nested maps of strings and lists of strings.
func readFile(file string, all []key) (map[string]any, rules.Errors) {
	root, errs := rules.ReadDocument(file)
	if len(errs) > 0 {
		return nil, errs
	}
	f := fileReader{file: file, keys: all}
	return f.mapping("", root), f.errs
}

type fileReader struct {
	file string
	keys []key
	errs rules.Errors
}

func (f *fileReader) pos(n *yaml.Node) rules.Position {
	return rules.Position{File: f.file, Line: n.Line, Column: n.Column}
}

func (f *fileReader) fail(n *yaml.Node, msg, allowed string) {
	f.errs = append(f.errs, rules.Error{Pos: f.pos(n), Msg: msg, Allowed: allowed})
}

// mapping reads the part of the file whose keys begin with prefix.
func (f *fileReader) mapping(prefix string, n *yaml.Node) map[string]any {
	children := f.children(prefix)
	if n.Kind != yaml.MappingNode {
		what := strings.TrimSuffix(prefix, ".")
		if what == "" {
			what = "file"
		}
		f.fail(n, what+" is not a mapping", "a mapping with "+strings.Join(children, ", "))
		return nil
	}
	got := make(map[string]any)
	lines := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		switch line, twice := lines[name.Value]; {
		case name.Kind != yaml.ScalarNode || !slices.Contains(children, name.Value):
			f.fail(name, rules.Unknown("key", prefix+name.Value, prefixed(prefix, children)),
				strings.Join(prefixed(prefix, children), ", "))
			continue
		case twice:
			f.fail(name, fmt.Sprintf("duplicate key %s, first set in line %d", prefix+name.Value, line), "each key once")
			continue
		}
		lines[name.Value] = name.Line
		full := prefix + name.Value
		if at := slices.IndexFunc(f.keys, func(k key) bool { return k.name == full }); at >= 0 {
			if v := f.value(&f.keys[at], value); v != nil {
				got[name.Value] = v
			}
		} else {
			got[name.Value] = f.mapping(full+".", value)
		}
	}
	return got
}

// children are the next parts of all keys that begin with prefix.
func (f *fileReader) children(prefix string) []string {
	var got []string
	for _, k := range f.keys {
		if rest, ok := strings.CutPrefix(k.name, prefix); ok {
			child, _, _ := strings.Cut(rest, ".")
			if !slices.Contains(got, child) {
				got = append(got, child)
			}
		}
	}
	return got
}

func prefixed(prefix string, names []string) []string {
	var got []string
	for _, name := range names {
		got = append(got, prefix+name)
	}
	return got
}

// value reads a value and checks its type and range.
func (f *fileReader) value(k *key, n *yaml.Node) []string {
	nodes := []*yaml.Node{n}
	if k.list && n.Kind == yaml.SequenceNode {
		nodes = n.Content
	}
	var v []string
	for _, n := range nodes {
		if n.Kind != yaml.ScalarNode || !slices.Contains(k.tags, n.Tag) {
			f.fail(n, k.name+" has the wrong type", k.allowed)
			return nil
		}
		errs := k.check(f.pos(n), []string{n.Value})
		f.errs = append(f.errs, errs...)
		if len(errs) > 0 {
			return nil
		}
		v = append(v, n.Value)
	}
	if len(v) != 1 { // a single one was checked above
		f.errs = append(f.errs, k.check(f.pos(n), v)...)
	}
	return v
}
