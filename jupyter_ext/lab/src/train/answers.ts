/** What the server answers about a job that is not submitted yet. Sizes are bytes, times seconds from now. */

export type { IForecast, IPackedFile, IPreview } from '../schemas';
