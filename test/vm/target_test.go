package main

import (
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
)

func TestNewestFirst(t *testing.T) {
	packages := strings.Fields(`
		linux-image-6.1.0-9-cloud-amd64 linux-image-6.1.0-56-cloud-amd64 linux-image-6.1.0-56-cloud-amd64-unsigned
		linux-image-6.1.0-47-cloud-amd64 linux-image-6.1.0-56-rt-amd64 linux-image-6.1.0-57-amd64
		linux-image-6.12.9+bpo-cloud-amd64 linux-image-6.12.117+deb12-cloud-amd64 linux-image-6.12.101+deb13-cloud-amd64
		linux-image-6.12.117+deb12-rt-amd64-dbg linux-image-6.12.90+deb12-rt-amd64 linux-image-cloud-amd64
		linux-image-6.1.0-56-cloud-amd64 linux-image-7.2.3+deb14-cloud-amd64`)
	for _, test := range []struct{ target, want string }{
		{"6.1", "linux-image-6.1.0-56-cloud-amd64 linux-image-6.1.0-47-cloud-amd64 linux-image-6.1.0-9-cloud-amd64"},
		{"6.1-rt", "linux-image-6.1.0-56-rt-amd64"},
		{"6.12", "linux-image-6.12.117+deb12-cloud-amd64 linux-image-6.12.101+deb13-cloud-amd64 linux-image-6.12.9+bpo-cloud-amd64"},
		{"6.12-rt", "linux-image-6.12.90+deb12-rt-amd64"},
		{"sid", "linux-image-7.2.3+deb14-cloud-amd64 linux-image-6.12.117+deb12-cloud-amd64 " +
			"linux-image-6.12.101+deb13-cloud-amd64 linux-image-6.12.9+bpo-cloud-amd64"},
	} {
		picked, err := pick(test.target, "", everyTurn)
		assert.NilError(t, err)
		got := picked[0].newestFirst(packages)
		assert.Check(t, slices.Equal(got, strings.Fields(test.want)),
			"%s: got %q, want %q", test.target, got, test.want)
	}
}

func TestPick(t *testing.T) {
	all, err := pick("", "", everyTurn)
	assert.Check(t, err == nil && len(all) == len(targets),
		"no list: got %d targets and %v, want all", len(all), err)
	_, err = pick("6.1,5.10", "", everyTurn)
	assert.Check(t, is.ErrorContains(err, `unknown kernel "5.10": known are 6.1, `), "unknown kernel")
}

// Every kernel has its turn, and each turn has kernels of both versions and both kinds. Of
// eight turns one has the long tests of a kernel.
func TestTurns(t *testing.T) {
	const all = turns * longTurns
	seen, whole := map[string]int{}, map[string]int{}
	for turn := range all {
		picked, err := pick("", "", turn)
		assert.NilError(t, err)
		list := strings.Join(names(picked), " ")
		for _, want := range []string{"6.1", "6.12", "-rt", "-idle"} {
			assert.Check(t, is.Contains(list, want), "turn %d", turn)
		}
		for i := range picked {
			seen[picked[i].name]++
			if !picked[i].short {
				whole[picked[i].name]++
			}
		}
	}
	for i := range targets {
		if targets[i].turn == noTurn {
			continue
		}
		assert.Check(t, seen[targets[i].name] >= longTurns, "%s ran %d times in %d turns", targets[i].name, seen[targets[i].name], all)
		assert.Check(t, whole[targets[i].name] >= 1, "%s never ran the long tests", targets[i].name)
	}
	picked, err := pick("", "TestBTF", 1)
	assert.NilError(t, err)
	assert.Check(t, is.DeepEqual(names(picked), []string{"6.1-rt", "6.12"}))
}

func TestModuleName(t *testing.T) {
	for path, want := range map[string]string{
		"a/null_blk.ko": "null_blk", "a/dm-mod.ko.xz": "dm_mod", "loop.ko.zst": "loop", "modules.dep": "",
	} {
		got, ok := moduleName(path)
		assert.Check(t, got == want && ok == (want != ""), "%s: got %q, %t", path, got, ok)
	}
}

func TestParseDepends(t *testing.T) {
	for info, want := range map[string][]string{
		"license=GPL\x00depends=configfs,dm-mod\x00name=x\x00": {"configfs", "dm_mod"},
		"depends=\x00": nil,
		"":             nil,
	} {
		got := parseDepends([]byte(info))
		assert.Check(t, slices.Equal(got, want), "%q: got %q, want %q", info, got, want)
	}
}
