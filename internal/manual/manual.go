// Package manual writes manual pages: one for each command of a cobra tree, with sections that
// --help has no room for, and one for the configuration file.
package manual

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Options describe the pages that Write makes.
type Options struct {
	Dir     string    // gets the files; it must exist
	Date    time.Time // of the pages
	Version string    // of the program
	Config  string    // annotated configuration file, described in tailcam.yaml(5); empty: no such page
}

// Write writes a page for root and for each command below it. Existing files are replaced.
func Write(root *cobra.Command, o *Options) error {
	pages := map[string]string{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		pages[name(cmd)+".1"] = command(cmd, o)
		for _, sub := range children(cmd) {
			walk(sub)
		}
	}
	walk(root)
	if o.Config != "" {
		text, err := configuration(o)
		if err != nil {
			return err
		}
		pages["tailcam.yaml.5"] = text
	}
	for file, text := range pages {
		if err := os.WriteFile(filepath.Join(o.Dir, file), []byte(text), 0o644); err != nil { //nolint:gosec // for everybody
			return fmt.Errorf("write manual page: %w", err)
		}
	}
	return nil
}

// name of a command's page: tailcam-snapshots-verify.
func name(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// children are the commands below cmd that have a page.
func children(cmd *cobra.Command) []*cobra.Command {
	var list []*cobra.Command
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" && cmd.Name() != "completion" {
			list = append(list, sub)
		}
	}
	return list
}

// command is the page of one command.
func command(cmd *cobra.Command, o *Options) string {
	p := newPage(name(cmd), "1", o)
	p.section("NAME")
	p.line(escape(name(cmd)) + ` \- ` + escape(lowerFirst(cmd.Short)))
	p.section("SYNOPSIS")
	p.line(synopsis(cmd))

	long, exit := takeExitStatus(cmd.Long)
	p.section("DESCRIPTION")
	if long == "" {
		long = strings.TrimSuffix(cmd.Short, ".") + "."
	}
	p.text(long)
	if !cmd.HasParent() {
		p.text(overview)
	}
	commands(p, cmd)
	options(p, cmd.LocalFlags(), cmd.InheritedFlags())
	if cmd.Example != "" {
		p.section("EXAMPLES")
		p.literal(cmd.Example)
	}
	p.section("EXIT STATUS")
	for _, e := range withCommon(exit) {
		p.item(bold(e[0]), e[1])
	}
	p.items("ENVIRONMENT", environment(cmd))
	p.items("FILES", files(cmd))
	p.section("SEE ALSO")
	p.line(strings.Join(seeAlso(cmd, o), ",\n"))
	return p.String()
}

func lowerFirst(s string) string {
	if len(s) > 1 && (s[1] == ' ' || s[1] >= 'a') {
		return strings.ToLower(s[:1]) + s[1:]
	}
	return s
}

func synopsis(cmd *cobra.Command) string {
	use := strings.TrimPrefix(cmd.UseLine(), cmd.CommandPath())
	if len(children(cmd)) > 0 && strings.TrimSpace(strings.TrimSuffix(use, "[flags]")) == "" {
		use = " COMMAND [flags]"
	}
	return bold(cmd.CommandPath()) + escape(use)
}

// commands lists the commands below cmd, by their groups.
func commands(p *page, cmd *cobra.Command) {
	list := children(cmd)
	if len(list) == 0 {
		return
	}
	p.section("COMMANDS")
	groups := []*cobra.Group{}
	groups = append(groups, cmd.Groups()...)
	groups = append(groups, &cobra.Group{ID: "", Title: "Other commands:"})
	for _, g := range groups {
		var of []*cobra.Command
		for _, sub := range list {
			if sub.GroupID == g.ID {
				of = append(of, sub)
			}
		}
		if len(of) > 0 && len(groups) > 1 {
			p.subsection(strings.TrimSuffix(g.Title, ":"))
		}
		for _, sub := range of {
			p.item(bold(strings.TrimPrefix(sub.CommandPath(), cmd.Root().Name()+" ")), sub.Short+".")
		}
	}
}

// options lists the flags, those of all commands last.
func options(p *page, flags, inherited *pflag.FlagSet) {
	if !flags.HasAvailableFlags() && !inherited.HasAvailableFlags() {
		return
	}
	p.section("OPTIONS")
	visit := func(do func(*pflag.Flag)) {
		flags.VisitAll(do)
		inherited.VisitAll(do)
	}
	visit(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		head := bold("--" + f.Name)
		if f.Shorthand != "" {
			head = bold("-"+f.Shorthand) + ", " + head
		}
		if value != "" && f.Value.Type() != "bool" {
			head += " " + italic(value)
		}
		switch f.DefValue {
		case "", "[]", "false", "0", "0s":
		default:
			usage += " (default " + strings.Trim(f.DefValue, "[]") + ")"
		}
		p.item(head, usage)
	})
}

// exitStatus is a paragraph as the long texts have it: Exit status: 0 outlier, 1 error.
var (
	exitStatus = regexp.MustCompile(`(?s)^Exit status: (.*?)\.?$`)
	status     = regexp.MustCompile(`^(\d+) (.*)$`)
)

// takeExitStatus takes the exit statuses out of a long text.
func takeExitStatus(long string) (rest string, statuses [][2]string) {
	var kept []string
	for _, paragraph := range strings.Split(strings.Trim(long, "\n"), "\n\n") {
		m := exitStatus.FindStringSubmatch(paragraph)
		if m == nil {
			kept = append(kept, paragraph)
			continue
		}
		for part := range strings.SplitSeq(strings.Join(strings.Fields(m[1]), " "), ", ") {
			if s := status.FindStringSubmatch(part); s != nil {
				statuses = append(statuses, [2]string{s[1], s[2]})
			} else if n := len(statuses); n > 0 {
				statuses[n-1][1] += ", " + part
			}
		}
	}
	return strings.Join(kept, "\n\n"), statuses
}

// commonStatuses are those of all commands.
var commonStatuses = [][2]string{
	{"0", "done"},
	{"1", "failed; what to change is on standard error"},
	{"2", "usage error: an unknown flag, a wrong argument or a malformed value; nothing was done"},
}

// withCommon adds the statuses that a long text does not mention.
func withCommon(own [][2]string) [][2]string {
	list := slices.Clone(own)
	for _, common := range commonStatuses {
		if !slices.ContainsFunc(own, func(s [2]string) bool { return s[0] == common[0] }) {
			list = append(list, common)
		}
	}
	slices.SortFunc(list, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return list
}

// seeAlso are references to the pages around cmd and to those of its subject.
func seeAlso(cmd *cobra.Command, o *Options) []string {
	var refs []string
	add := func(page, section string) {
		if ref := bold(page) + "(" + section + ")"; page != name(cmd) && !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	if cmd.HasParent() {
		add(name(cmd.Parent()), "1")
	}
	for _, sub := range children(cmd) {
		add(name(sub), "1")
	}
	if cmd.HasParent() && cmd.GroupID != "" {
		for _, sibling := range children(cmd.Parent()) {
			if sibling.GroupID == cmd.GroupID {
				add(name(sibling), "1")
			}
		}
	}
	if o.Config != "" && (!cmd.HasParent() || cmd.Flags().Lookup("config") != nil) {
		add("tailcam.yaml", "5")
	}
	if o.Config != "" {
		add("tailcam-rules", "5")
	}
	return refs
}
