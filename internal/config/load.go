package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/tailcam/tailcam/rules"
)

const configEnv = "TAILCAM_CONFIG"

// moreDir, beside the configuration file, has files with further keys.
const moreDir = "conf.d"

// AddFlags adds --config and a flag for every key: snapshots.min_free is
// --snapshots-min-free.
func AddFlags(flags *pflag.FlagSet) {
	AddFileFlag(flags)
	for _, k := range keys() {
		if k.list {
			flags.StringSlice(k.flag(), k.def, k.usage)
		} else {
			usage := k.usage
			if k.def[0] == "false" || k.def[0] == "0" { // pflag leaves these out
				usage += fmt.Sprintf(" (default %q)", k.def[0])
			}
			flags.Var(&flagValue{text: k.def[0], allowed: k.allowed}, k.flag(), usage)
		}
	}
	flags.Lookup("pin").NoOptDefVal = DefaultPinDir
}

// flagValue is a text of the command line that is not the next flag: who writes --activities-enabled
// alone shall not lose the flag after it. It implements pflag.Value.
type flagValue struct{ text, allowed string }

func (v *flagValue) String() string { return v.text }
func (v *flagValue) Type() string   { return "string" }

func (v *flagValue) Set(s string) error {
	if strings.HasPrefix(s, "--") {
		return fmt.Errorf("is the next flag; a value is needed before it: %s", v.allowed)
	}
	v.text = s
	return nil
}

// AddFileFlag adds --config alone.
func AddFileFlag(flags *pflag.FlagSet) {
	flags.String("config", "", "configuration `file` (default "+DefaultFile+" if it exists); conf.d/*.yaml beside it override its keys")
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
	var wrong rules.Errors
	c.File, c.Files, wrong = configFiles(flags)
	errs = append(errs, wrong...)
	for _, file := range c.Files {
		values, wrong := readFile(file, all)
		errs = append(errs, wrong...)
		if err := v.MergeConfigMap(values); err != nil {
			return Config{}, fmt.Errorf("merge %s: %w", file, err)
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

	sized := v.IsSet(sizeKey) && !v.IsSet(coverKey)
	for _, k := range all {
		v.SetDefault(k.name, k.def)
	}
	if sized {
		v.SetDefault(coverKey, "0s")
	}
	for _, k := range all {
		errs = append(errs, k.apply(&c, rules.Position{File: k.name}, values(v.Get(k.name), k.list))...)
	}
	if c.Alerts.open() {
		errs = append(errs, rules.Error{
			Pos: rules.Position{File: "alerts.listen"}, Msg: fmt.Sprintf("anybody who reaches %s could send alerts", c.Alerts.Listen),
			Allowed: "alerts.web_config with basic_auth_users, 127.0.0.1 or [::1], or unix: and a path",
		})
	}
	errs = append(errs, c.Peers.check()...)
	if len(errs) > 0 {
		return Config{}, errs
	}
	return c, nil
}

// Files lists the files that Load reads, also if they have errors.
func Files(flags *pflag.FlagSet) []string {
	_, all, _ := configFiles(flags)
	return all
}

// configFiles lists the files to read: the given one, or the default one if it exists,
// then those of the directory conf.d beside it, sorted by name. Later ones win.
func configFiles(flags *pflag.FlagSet) (file string, all []string, errs rules.Errors) {
	if flag := flags.Lookup("config"); flag != nil && flag.Changed {
		file = flag.Value.String()
	} else {
		file = os.Getenv(configEnv)
	}
	dir := filepath.Join(filepath.Dir(cmp.Or(file, DefaultFile)), moreDir)
	if file == "" {
		if _, err := os.Stat(DefaultFile); !errors.Is(err, fs.ErrNotExist) {
			file = DefaultFile
		}
	}
	if file != "" {
		all = append(all, file)
	}
	entries, err := os.ReadDir(dir) // sorted
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
		errs = rules.Errors{{Pos: rules.Position{File: dir}, Msg: "cannot read: " + err.Error()}}
	}
	for _, e := range entries {
		if name := e.Name(); !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(name)) {
			all = append(all, filepath.Join(dir, name))
		}
	}
	return file, all, errs
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
		if k.unset {
			return nil
		}
		return fail(k.name + " is empty")
	}
	if wrong := k.set(c, v); wrong != "" && k.secret {
		return fail(k.name + " " + wrong)
	} else if wrong != "" {
		return fail(fmt.Sprintf("%s %q %s", k.name, strings.Join(v, ","), wrong))
	}
	return nil
}

// serviceVariable matches what Kubernetes, and Docker with links, put into every
// container where a service has the name tailcam, or begins with it: TAILCAM_SERVICE_HOST,
// TAILCAM_PORT=tcp://..., TAILCAM_PORT_9191_TCP_ADDR. No key has such a name.
var serviceVariable = regexp.MustCompile(
	`^TAILCAM_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// FleetPasswordEnv is a variable of the command line that is no key: the password of
// the user in --fleet, for which there is no flag because others see command lines.
const FleetPasswordEnv = "TAILCAM_FLEET_PASSWORD" //nolint:gosec // the name of a variable

// checkEnviron finds unknown TAILCAM_ variables and invalid values of known ones. An
// empty variable counts as not set, and those of services are none of ours.
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
		if !strings.HasPrefix(name, "TAILCAM_") || name == configEnv || name == FleetPasswordEnv || value == "" {
			continue
		}
		if k, ok := byName[name]; ok {
			errs = append(errs, k.check(rules.Position{File: name}, values(value, k.list))...)
			continue
		}
		if serviceVariable.MatchString(name) {
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
	v := []string{} // not nil: an empty list is a value
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
