// How is the graph of a node written for Mermaid, which GitHub and GitLab draw?
import type { NodeModel } from '../node/model.ts';
import { isProblem } from './condition.ts';
import { type Box, graphOf } from './edges.ts';

/** A flowchart. Text is quoted, and what Mermaid would read as markup is written as entities. */
export function drawMermaid(node: NodeModel): string {
  const { boxes, edges } = graphOf(node);
  const bad = boxes.filter(({ condition }) => condition && isProblem(condition)).map(({ id }) => id);
  return [
    'flowchart LR',
    ...boxes.map(box => `  ${box.id}${shapeOf(box)}`),
    ...edges.map(({ from, to, label }) => `  ${from} ---${label ? `|"${toEntities(label)}"|` : ''} ${to}`),
    ...(bad.length
      ? ['  classDef problem stroke:#c00,stroke-width:3px', `  class ${bad.join(',')} problem`]
      : []),
    '',
  ].join('\n');
}

function shapeOf({ kind, lines }: Box): string {
  const text = `"${lines.map(toEntities).join('<br>')}"`;
  if (kind === 'attachment') return `(${text})`;
  return kind === 'outside' ? `((${text}))` : `[${text}]`;
}

function toEntities(text: string): string {
  return text.replace(/[&<>"#;]/g, char => `#${char.codePointAt(0)};`);
}
