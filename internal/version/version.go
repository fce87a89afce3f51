// Package version says which build this is.
package version

import "runtime/debug"

// Set by the linker: -X github.com/tailcam/tailcam/internal/version.version=v1.2.3
var version string

// String is the version set at build time, or what the Go toolchain knows about
// the sources, or "devel".
func String() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// Commit is the commit that was built, with "+changes" if files differed from
// it; empty where the toolchain was not told.
func Commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var commit, suffix string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			suffix = "+changes"
		}
	}
	if commit == "" {
		return ""
	}
	return commit + suffix
}
