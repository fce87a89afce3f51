package term

import (
	"strings"
	"unicode/utf8"
)

// Column is one column of a Table.
type Column struct {
	Title string
	Right bool // numbers stand to the right
}

// Cell is one value of a row. Text from outside must have been through Clean.
type Cell struct {
	Text  string
	Style Style
}

// Table collects rows and prints them with their columns aligned.
type Table struct {
	columns []Column
	rows    [][]Cell
}

// NewTable returns an empty table.
func NewTable(columns ...Column) *Table { return &Table{columns: columns} }

// Row adds a row of plain cells.
func (t *Table) Row(texts ...string) {
	cells := make([]Cell, len(texts))
	for i, text := range texts {
		cells[i].Text = text
	}
	t.Cells(cells...)
}

// Cells adds a row; cells missing at its end are empty, those past the last column are dropped.
func (t *Table) Cells(cells ...Cell) {
	row := make([]Cell, len(t.columns))
	copy(row, cells)
	t.rows = append(t.rows, row)
}

// Print writes the titles, dimmed, and the rows, each line after indent.
func (t *Table) Print(c *Console, indent string) {
	widths := make([]int, len(t.columns))
	titles := make([]Cell, len(t.columns))
	for i, col := range t.columns {
		titles[i] = Cell{col.Title, Dim}
		widths[i] = utf8.RuneCountInString(col.Title)
		for _, row := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].Text))
		}
	}
	t.line(c, indent, widths, titles)
	for _, row := range t.rows {
		t.line(c, indent, widths, row)
	}
}

func (t *Table) line(c *Console, indent string, widths []int, row []Cell) {
	last := len(row) - 1
	for last > 0 && row[last].Text == "" {
		last--
	}
	var b strings.Builder
	b.WriteString(indent)
	for i, cell := range row[:last+1] {
		if i > 0 {
			b.WriteString("  ")
		}
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell.Text))
		text := c.Paint(cell.Style, cell.Text)
		switch {
		case t.columns[i].Right:
			b.WriteString(pad + text)
		case i == last:
			b.WriteString(text) // no blanks at the end of a line
		default:
			b.WriteString(text + pad)
		}
	}
	c.Printf("%s\n", b.String())
}
