import { expect, test } from 'bun:test';
import { renderTable } from '../../../../src/cli/node/table.ts';

const ROWS = [
  ['NAME', 'ADDRESS'],
  ['a-rather-long-name', '10.88.0.2'],
];

test('renderTable() cuts nothing without a width', () => {
  expect(renderTable(ROWS, undefined)).toBe('NAME                ADDRESS\na-rather-long-name  10.88.0.2\n');
});

test('renderTable() cuts the widest column, and shows that', () => {
  expect(renderTable(ROWS, 20)).toBe('NAME       ADDRESS\na-rather…  10.88.0.2\n');
});
