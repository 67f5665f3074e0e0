// Which rows of a long table does a run of all files try?

/**
 * Whether this is `npm test` as a whole, which asks each question once: fewer rounds of a race, fewer sizes, one damage for each file.
 * `npm run test:all`, and a file that was asked for, try every row.
 */
export const IS_SAMPLE = process.env.CATENA_TEST_SAMPLE !== undefined;
