// How much of a text fits into a box of a drawing, in the font that the page has?

const context = document.createElement('canvas').getContext('2d');
let family = '';

/** The text, or its begin and end with dots between them, at most so many pixels wide. */
export function fit(
  text: string,
  width: number,
  font: { readonly size: number; readonly weight?: number },
): string {
  if (context === null) return text;
  family ||= getComputedStyle(document.body).fontFamily;
  context.font = `${font.weight ?? 400} ${font.size}px ${family}`;
  let shown = text;
  for (let kept = text.length - 1; kept > 0 && context.measureText(shown).width > width; kept--)
    // The end of a long name tells more of it than the middle.
    shown = `${text.slice(0, Math.ceil((kept * 2) / 3))}…${text.slice(-Math.floor(kept / 3) || text.length)}`;
  return shown;
}
