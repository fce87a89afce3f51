package term

import "github.com/tailcam/tailcam/internal/text"

// Clean makes text from outside harmless on a terminal: see text.Clean.
func Clean(s string) string { return text.Clean(s) }
