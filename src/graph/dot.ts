// How is the graph of a node written for Graphviz?
import type { NodeModel } from '../node/model.ts';
import { isProblem } from './condition.ts';
import { type Box, graphOf } from './edges.ts';

/** An undirected graph in the DOT language. */
export function drawDot(node: NodeModel): string {
  const { boxes, edges } = graphOf(node);
  return [
    'graph node {',
    '  rankdir=LR;',
    '  node [shape=box, fontname="sans-serif"];',
    ...boxes.map(box => `  ${box.id} [label=${quote(box.lines.join('\n'))}${lookOf(box)}];`),
    ...edges.map(({ from, to, label }) => `  ${from} -- ${to}${label ? ` [label=${quote(label)}]` : ''};`),
    '}',
    '',
  ].join('\n');
}

function lookOf({ kind, condition }: Box): string {
  if (condition !== undefined)
    return `, style=rounded${isProblem(condition) ? ', color=red, penwidth=3' : ''}`;
  return kind === 'outside' ? ', shape=ellipse' : '';
}

function quote(text: string): string {
  return `"${text.replace(/[\\"]/g, '\\$&').replaceAll('\n', '\\n')}"`;
}
