package main

import (
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailcam/tailcam/internal/term"
	"github.com/tailcam/tailcam/internal/version"
)

// versionInfo is what a bug report should include.
type versionInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Kernel  string `json:"kernel,omitempty"` // running here
}

func newVersion(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Print the version of this program, its commit, Go version and platform, and the running
kernel. That of the daemon is in "tailcam status".`,
		Example: "  tailcam version -o json",
		Args:    noArgs,
		RunE:    func(*cobra.Command, []string) error { return c.printVersion() },
	}
	c.addOutput(cmd)
	return cmd
}

func (c *cli) printVersion() error {
	v := thisVersion()
	if c.wantsData() {
		return c.printData(v)
	}
	c.out.Printf("tailcam %s", v.Version)
	if v.Commit != "" {
		c.out.Printf(" (%s)", v.Commit)
	}
	c.out.Printf("\n%s, %s/%s, kernel %s\n", v.Go, v.OS, v.Arch, term.Clean(v.Kernel))
	return nil
}

func thisVersion() versionInfo {
	v := versionInfo{
		Version: version.String(), Commit: version.Commit(),
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		v.Kernel = strings.TrimSpace(string(release))
	}
	return v
}
