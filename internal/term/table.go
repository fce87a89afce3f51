package term

import (
	"strings"
)

// Column is one column of a Table.
type Column struct {
	Title string
	Right bool // numbers stand to the right
	Flex  bool // shortened where the table is wider than the terminal
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
		widths[i] = Width(col.Title)
		for _, row := range t.rows {
			widths[i] = max(widths[i], Width(row[i].Text))
		}
	}
	if c.terminal {
		t.squeeze(c.Columns()-Width(indent), widths)
	}
	t.line(c, indent, widths, titles)
	for _, row := range t.rows {
		t.line(c, indent, widths, row)
	}
}

// narrowest is what a column that gives way keeps.
const narrowest = 8

// squeeze makes the widest columns that give way narrower until the table fits.
func (t *Table) squeeze(room int, widths []int) {
	sum := 2 * (len(widths) - 1)
	for _, w := range widths {
		sum += w
	}
	for ; sum > room; sum-- {
		widest := -1
		for i, col := range t.columns {
			if col.Flex && widths[i] > narrowest && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
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
		short := cell.Text
		if t.columns[i].Flex {
			short = Shorten(short, widths[i])
		}
		pad := strings.Repeat(" ", max(0, widths[i]-Width(short)))
		text := c.Paint(cell.Style, short)
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
