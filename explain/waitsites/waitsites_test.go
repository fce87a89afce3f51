package waitsites_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/tailcam/tailcam/explain/waitsites"
	"github.com/tailcam/tailcam/test/support/provoke"
)

// TestFunctionsExist holds every site against the running kernel's symbols: a site none of
// whose functions is there has been renamed. The guests of test/vm do the same.
func TestFunctionsExist(t *testing.T) {
	provoke.WaitSites(t)
}

func TestFind(t *testing.T) {
	for _, test := range []struct {
		name     string
		find     func([]string) (waitsites.Match, bool)
		stack    []string
		function string // "": none
	}{
		{"the innermost", waitsites.Wait, []string{"jbd2_log_wait_commit+0x12b", "ext4_sync_file+0x1", "do_fsync+0x3d"}, "jbd2_log_wait_commit"},
		{"of a module, cloned by the compiler", waitsites.Wait, []string{"fuse_x+0x1 [fuse]", "request_wait_answer.isra.0+0x12b [fuse]"}, "request_wait_answer"},
		{"a general one gives way", waitsites.Wait, []string{"folio_wait_bit_common+0x1", "filemap_read_folio+0x2", "do_fsync+0x3"}, "filemap_read_folio"},
		{"if there is another", waitsites.Wait, []string{"folio_wait_bit_common+0x1", "unheard_of+0x2"}, "folio_wait_bit_common"},
		{"the innermost of two general ones", waitsites.Wait, []string{"folio_wait_bit_common+0x1", "folio_wait_writeback+0x2"}, "folio_wait_bit_common"},
		{"the address space's lock", waitsites.Wait, []string{"do_user_addr_fault+0x1", "exc_page_fault+0x2"}, "do_user_addr_fault"},
		{"a fault that waits for something else", waitsites.Wait, []string{"unheard_of+0x1", "do_user_addr_fault+0x2"}, ""},
		{"who takes a lock that has a function", waitsites.Wait, []string{"percpu_rwsem_wait+0x15f", "vfs_write+0x3f0", "ksys_write+0x66"}, "vfs_write"},
		{"not what is around that", waitsites.Wait, []string{"percpu_rwsem_wait+0x15f", "unheard_of+0x1", "vfs_write+0x3f0"}, "percpu_rwsem_wait"},
		{"only addresses", waitsites.Wait, []string{"0xffffffff81000000", "0xffffffff81000010"}, ""},
		{"nothing", waitsites.Wait, nil, ""},
		{"work", waitsites.Work, []string{"copy_p4d_range+0x3", "copy_page_range+0x1", "dup_mmap+0x3", "copy_process+0x4"}, "copy_page_range"},
		{"a wait is no work", waitsites.Work, []string{"jbd2_log_wait_commit+0x12b"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, ok := test.find(test.stack)
			assert.Equal(t, ok, test.function != "")
			assert.Equal(t, m.Function, test.function)
		})
	}
}

// TestDictionary holds its entries against each other.
func TestDictionary(t *testing.T) {
	seen := map[string]bool{}
	areas := map[string]waitsites.Area{}
	for i, s := range waitsites.Sites() {
		assert.Check(t, s.Words != "" && len(s.Functions) > 0, "site %d is empty", i)
		assert.Check(t, !strings.HasSuffix(s.Words, "."), "%q is no part of a sentence", s.Words)
		assert.Check(t, s.Advice == "" || strings.HasSuffix(s.Advice, "."), "%q is no sentence", s.Advice)
		a := s.Area()
		assert.Check(t, areas[a.Name] == (waitsites.Area{}) || areas[a.Name] == a, "area %s has two markers", a.Name)
		areas[a.Name] = a
		for _, f := range s.Functions {
			wait, _ := waitsites.Wait([]string{f})
			work, _ := waitsites.Work([]string{f})
			assert.Check(t, wait.Site == s || work.Site == s, "%s is of two sites", f)
			assert.Equal(t, f, waitsites.Function(f))
		}
		key := strings.Join(s.Functions, " ") + s.Words
		assert.Check(t, !seen[key], "%s is there twice", key)
		seen[key] = true
	}
}

func FuzzFind(f *testing.F) {
	f.Add("folio_wait_bit_common+0x1 [x]\nfilemap_read")
	f.Fuzz(func(_ *testing.T, stack string) {
		frames := strings.Split(stack, "\n")
		waitsites.Wait(frames)
		waitsites.Work(frames)
	})
}
