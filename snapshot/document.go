package snapshot

import "fmt"

// Bounds of a JSON document of a snapshot, which anybody may have written. Decoded, it takes
// memory by its values, not by its bytes: each 0 in an array of outliers makes a whole one.
const (
	maxNesting  = 64
	maxInList   = 1 << 17 // elements of an array that the document itself has, such as outliers
	maxElements = 1 << 20 // of all arrays
	maxMembers  = 1 << 22 // of all objects
)

// ReadDocument is ReadFile for JSON that is to be decoded. It refuses what would take much
// more memory than any document that tailcam writes.
func ReadDocument(path string, most int64) ([]byte, error) {
	data, err := ReadFile(path, most)
	if err != nil {
		return nil, err
	}
	if err := plausible(data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// plausible counts what a document has. Whether it is valid is the decoder's to find.
func plausible(data []byte) error {
	var arrays [maxNesting]bool // what each level is
	depth, listed, elements, members := 0, 0, 0, 0
	for i := 0; i < len(data); i++ {
		switch c := data[i]; c {
		case '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			if depth == maxNesting {
				return fmt.Errorf("it is nested more than %d levels deep", maxNesting)
			}
			arrays[depth] = c == '['
			depth++
			if depth == 2 {
				listed = 0
			}
		case '}', ']':
			depth = max(depth-1, 0)
		case ',':
			switch {
			case depth == 0:
			case !arrays[depth-1]: //nolint:gosec // depth is from 1 to maxNesting
				members++
			default:
				elements++
				if depth == 2 {
					listed++
				}
			}
		}
		if listed >= maxInList || elements >= maxElements || members >= maxMembers {
			return fmt.Errorf("it has more values than any that tailcam writes (%d in a list, %d in all lists, %d with names)",
				listed, elements, members)
		}
	}
	return nil
}
