// How does a table fit the terminal?

/** No column becomes narrower than this. */
const LEAST = 5;

/**
 * Aligned columns, two spaces apart, each line with a line break. If they are wider than the terminal, the widest are cut, which `…` shows.
 * @param rows the header first
 */
export function renderTable(rows: readonly (readonly string[])[], width: number | undefined): string {
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
  return rows
    .map(
      row =>
        `${row
          .map((cell, i) => fit(cell, widths[i] ?? 0))
          .join('  ')
          .trimEnd()}\n`,
    )
    .join('');
}

function fit(cell: string, width: number): string {
  return cell.length <= width ? cell.padEnd(width) : `${cell.slice(0, width - 1)}…`;
}
