package process

import (
	"bytes"
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/tailcam/tailcam/internal/text"
)

// maxTitle bounds a title, in bytes.
const maxTitle = 96

// title is what a process calls itself, given /proc/PID/cmdline with its NULs and the name
// of its first thread: the title that it has set, as PostgreSQL and nginx do, the main class
// or the archive of a Java program, the script of an interpreter after the name that this gave
// itself. "": its name says it all. No other argument is part of it, as arguments may be secret.
func title(cmdline []byte, comm string) string {
	line := bytes.TrimRight(cmdline, "\x00 \n")
	if len(line) == 0 {
		return ""
	}
	var t string
	if args := strings.Split(string(line), "\x00"); len(args) > 1 {
		if t = program(args); t != "" && !strings.HasPrefix(t, comm) && interpreterOf(comm) == nil && !interpreterOf(args[0]).classes {
			t = comm + " of " + t // it has named itself
		}
	} else {
		t = ownTitle(args[0])
	}
	if t = strings.TrimSpace(text.Clean(t)); t == comm {
		return ""
	}
	return clean(t, maxTitle)
}

// ownTitle is a title that has replaced the arguments: one string with spaces. Some
// programs, such as browsers, put their options there: it ends before the first.
func ownTitle(line string) string {
	words := strings.Fields(line)
	if len(words) < 2 {
		return ""
	}
	if i := slices.IndexFunc(words, func(w string) bool { return w[0] == '-' }); i >= 0 {
		words = words[:i]
	}
	if len(words) < 2 {
		return ""
	}
	if strings.HasPrefix(words[0], "/") {
		words[0] = path.Base(words[0])
	}
	return strings.Join(withoutActivity(words), " ")
}

// withoutActivity cuts a title of PostgreSQL's after the client's address, "[local]" or HOST(PORT):
// what follows is what the process is at, which is another thing when the title is read than it was
// when somebody waited for it (ps_status.c).
func withoutActivity(words []string) []string {
	for i, w := range words {
		_, port, remote := strings.Cut(strings.TrimSuffix(w, ")"), "(")
		remote = remote && port != "" && strings.HasSuffix(w, ")") && strings.Trim(port, "0123456789") == ""
		if words[0] == "postgres:" && (remote || w == "[local]") {
			return words[:i+1]
		}
	}
	return words
}

// interpreter is how a program finds what it runs among its arguments.
type interpreter struct {
	// valued are options whose value is the next argument, code those after which no
	// file is run, and names those whose value is what is run.
	valued, code, names []string
	// bundles: short options may be joined, as in perl -ne CODE. attached are those whose
	// value follows in the same word.
	bundles  bool
	attached string
	// classes: it runs classes, which cannot name its first thread.
	classes bool
}

// interpreters are known by the name of their executable without its version.
var interpreters = map[string]*interpreter{
	"java": {
		// IsWhiteSpaceOption in java.c of OpenJDK's launcher.
		valued: []string{"-cp", "-classpath", "--class-path", "-p", "--module-path", "--add-modules", "--add-opens",
			"--add-exports", "--add-reads", "--limit-modules", "--upgrade-module-path", "--patch-module",
			"--enable-native-access", "--source"},
		code:  []string{"--version", "-version", "--help", "-d", "--describe-module"},
		names: []string{"-jar", "-m", "--module"}, classes: true,
	},
	"python": {
		valued: []string{"-W", "-X", "-Q", "--check-hash-based-pycs"}, code: []string{"-c"}, names: []string{"-m"},
		bundles: true, attached: "WXQ",
	},
	"node": {
		valued: []string{"-r", "--require", "--import", "--loader", "--experimental-loader", "-C", "--conditions",
			"--env-file", "--title"},
		code: []string{"-e", "--eval", "-p", "--print", "-pe"},
	},
	"ruby": {
		valued: []string{"-I", "-r", "-C", "-E", "--encoding", "--require"}, code: []string{"-e"},
		bundles: true, attached: "IrCEKWx",
	},
	"perl": {valued: []string{"-I"}, code: []string{"-e", "-E"}, bundles: true, attached: "IMm"},
}

// aliases are other names of executables, and of their first threads.
var aliases = map[string]string{"nodejs": "node", "MainThread": "node", "node-MainThread": "node", "pypy": "python"}

// interpreterOf returns the interpreter that has this name, with or without a version and a
// directory; nil: none has.
func interpreterOf(name string) *interpreter {
	name = strings.TrimRight(path.Base(name), "0123456789.")
	return interpreters[cmp.Or(aliases[name], name)]
}

// program is what an interpreter runs; "": another program, or it cannot be told.
func program(args []string) string {
	in := interpreterOf(args[0])
	if in == nil {
		return ""
	}
	for i := 1; i < len(args); i++ {
		arg := args[i]
		switch {
		case slices.Contains(in.names, arg):
			if i+1 == len(args) {
				return ""
			}
			return programName(in, arg, args[i+1])
		case slices.Contains(in.valued, arg):
			i++
		case arg == "" || arg == "-" || arg[0] == '@' || slices.Contains(in.code, arg) || in.hides(arg):
			return "" // standard input, a file with arguments, or code
		case arg[0] != '-':
			return programName(in, "", arg)
		}
	}
	return ""
}

// hides reports whether joined short options may have one that is followed by code or by
// a name.
func (in *interpreter) hides(arg string) bool {
	if !in.bundles || len(arg) < 3 || arg[0] != '-' || arg[1] == '-' || strings.IndexByte(in.attached, arg[1]) >= 0 {
		return false
	}
	return slices.ContainsFunc(slices.Concat(in.code, in.names), func(o string) bool {
		return len(o) == 2 && strings.IndexByte(arg[1:], o[1]) >= 0
	})
}

// programName is a file without its directory, or a class without its module. A name that
// is no name of either is left out.
func programName(in *interpreter, option, value string) string {
	switch {
	case in.classes && option == "" && !strings.Contains(value, ".java"):
		return value // a class
	case option == "-m" || option == "--module":
		if _, class, ok := strings.Cut(value, "/"); ok {
			return class
		}
		return value
	}
	if base := path.Base(value); base != "/" && base != "." {
		return base
	}
	return ""
}
