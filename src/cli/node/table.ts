// How does a table fit the terminal?

/** No column becomes narrower than this. */
const LEAST = 5;

/**
 * Aligned columns, two spaces apart, each line with a line break. If they are wider than the terminal, the widest are cut, which `…` shows.
 * @param rows the header first
 * @param paint gives a cell its colour, by its row and column
 */
export function renderTable(
  rows: readonly (readonly string[])[],
  width: number | undefined,
  paint: (cell: string, row: number, column: number) => string = cell => cell,
): string {
  const columns = rows[0]?.length ?? 0;
  const widths = Array.from({ length: columns }, (_, i) => {
    return Math.max(...rows.map(row => row[i]?.length ?? 0));
  });
  const total = () => widths.reduce((sum, one) => sum + one, 0) + 2 * (columns - 1);
  while (width !== undefined && total() > width) {
    const widest = Math.max(...widths);
    if (widest <= LEAST) break;
    widths[widths.lastIndexOf(widest)] = Math.max(LEAST, widest - Math.min(total() - width, 1));
  }
  const line = (row: readonly string[], at: number): string => {
    const cells = row.map((cell, i) => {
      const shown = cut(cell, widths[i] ?? 0);
      return `${paint(shown, at, i)}${' '.repeat((widths[i] ?? 0) - shown.length)}`;
    });
    return `${cells.join('  ').trimEnd()}\n`;
  };
  return rows.map(line).join('');
}

function cut(cell: string, width: number): string {
  return cell.length <= width ? cell : `${cell.slice(0, width - 1)}…`;
}
