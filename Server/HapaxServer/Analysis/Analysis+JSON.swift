import HapaxModel

// The forms that docs/reading.md shows: JSON, and CSV (RFC 4180) with one figure's coordinates in each line.

extension JSONWriter {
    fileprivate mutating func members(of figures: Series.Figures) {
        member("events", figures.events)
        member("users", figures.users)
    }

    fileprivate mutating func members(of filter: EventFilter) {
        member("event", filter.name)
        member("where", list: filter.properties) { writer, filter in writer.string(filter.text) }
    }
}

extension Series {
    func json() -> [UInt8] {
        var writer = JSONWriter(capacity: 1_024 + points.count * 160)
        writer.object { writer in
            frame.write(to: &writer) { writer in
                writer.members(of: query.filter)
                writer.member("unit", query.unit.rawValue)
                if query.compares { writer.member("compare", "previous") }
                writer.member("over", query.over)
            }
            writer.member("points", list: points) { writer, point in
                writer.object { writer in
                    writer.member("start", point.zone.text(point.starts))
                    writer.member("end", point.zone.text(point.ends))
                    writer.member("state", point.state.rawValue)
                    writer.members(of: point.figures)
                    if query.over != nil { writer.member("users_over", point.trailing) }
                    if query.compares { writer.previous(point.previous) }
                }
            }
            writer.member("total") { writer in
                writer.members(of: total)
                if query.compares { writer.previous(previousTotal) }
            }
        }
        return writer.bytes
    }

    func csv() -> [UInt8] {
        let columns =
            ["events", "users"] + (query.over == nil ? [] : ["users_over"]) + (query.compares ? ["previous_events", "previous_users"] : [])
        return CSV.text(
            [["start", "end", "state"] + columns]
                + points.map { point in
                    let cells: [Int64?] =
                        [point.figures.events, point.figures.users] + (query.over == nil ? [] : [point.trailing])
                        + (query.compares ? [point.previous?.events, point.previous?.users] : [])
                    return [point.zone.text(point.starts), point.zone.text(point.ends), point.state.rawValue]
                        + cells.map { $0.map { "\($0)" } ?? "" }
                })
    }
}

extension JSONWriter {
    fileprivate mutating func previous(_ figures: Series.Figures?) {
        if let figures { member("previous") { $0.members(of: figures) } } else { member("previous", String?.none) }
    }
}

extension Breakdown {
    func json() -> [UInt8] {
        var writer = JSONWriter(capacity: 1_024 + rows.count * 128)
        writer.object { writer in
            frame.write(to: &writer) { writer in
                writer.members(of: query.filter)
                writer.member("property", query.property)
                writer.member("sort", query.order.rawValue)
                writer.member("limit", query.limit)
            }
            writer.member("rows", list: rows) { writer, row in
                writer.object { writer in
                    writer.member("value")
                    writer.raw(row.value)
                    writer.members(of: row.figures)
                }
            }
            writer.member("missing") { $0.members(of: missing) }
            writer.member("other") { writer in
                writer.member("values", otherValues)
                writer.members(of: other)
            }
            writer.member("total") { $0.members(of: total) }
        }
        return writer.bytes
    }

    /// The kind tells a value from the lines for all others; texts stand without their quotation marks.
    func csv() -> [UInt8] {
        func line(_ kind: String, _ value: String, _ figures: Series.Figures) -> [String] {
            [kind, value, "\(figures.events)", "\(figures.users)"]
        }
        let values = rows.map { row in
            if case .string(let text)? = try? PropertyValue(json: String(decoding: row.value, as: UTF8.self)) {
                return line("string", text, row.figures)
            }
            return line("json", String(decoding: row.value, as: UTF8.self), row.figures)
        }
        return CSV.text(
            [["kind", "value", "events", "users"]] + values + [
                line("missing", "", missing), line("other", "", other), line("total", "", total),
            ])
    }
}

extension Funnel {
    func json() -> [UInt8] {
        var writer = JSONWriter(capacity: 2_048)
        writer.object { writer in
            frame.write(
                to: &writer,
                query: { writer in
                    writer.member("steps", list: query.steps) { writer, step in writer.object { $0.members(of: step) } }
                    writer.member("within_ms", query.within)
                    writer.member("by", query.key.rawValue)
                }, warnings: isStraddled ? ["steps_straddle_login"] : [])
            writer.member("steps", list: steps.indices) { writer, index in
                writer.object { writer in
                    writer.member("step", query.steps[index].name)
                    writer.member("users", steps[index].users)
                    writer.member("from_previous", fraction: index > 0 ? (steps[index].users, steps[index - 1].users) : nil)
                    writer.member("from_first", fraction: index > 0 ? (steps[index].users, steps[0].users) : nil)
                    writer.member("median_ms", steps[index].fromFirst?.median)
                    writer.member("p90_ms", steps[index].fromFirst?.p90)
                    writer.member("median_from_previous_ms", steps[index].fromPrevious?.median)
                    writer.member("p90_from_previous_ms", steps[index].fromPrevious?.p90)
                }
            }
            writer.member("open", open)
        }
        return writer.bytes
    }

    func csv() -> [UInt8] {
        let titles = ["number", "step", "users", "median_ms", "p90_ms", "median_from_previous_ms", "p90_from_previous_ms"]
        return CSV.text(
            [titles]
                + steps.enumerated().map { index, step in
                    let times = [step.fromFirst?.median, step.fromFirst?.p90, step.fromPrevious?.median, step.fromPrevious?.p90]
                    return ["\(index + 1)", query.steps[index].name ?? "", "\(step.users)"] + times.map { $0.map { "\($0)" } ?? "" }
                })
    }
}

extension Return {
    func json() -> [UInt8] {
        var writer = JSONWriter(capacity: 1_024 + cohorts.count * cohorts.count * 16)
        writer.object { writer in
            frame.write(
                to: &writer,
                query: { writer in
                    writer.member("start", query.start)
                    writer.member("return", query.again.name)
                    writer.member("where", list: query.again.properties) { writer, filter in writer.string(filter.text) }
                    writer.member("unit", query.unit.rawValue)
                    writer.member("mode", query.mode.rawValue)
                })
            writer.member("cohorts", list: cohorts.indices) { writer, index in
                writer.object { writer in
                    writer.member("day", cohorts[index].day.description)
                    writer.member("size", cohorts[index].size)
                    writer.member("returned", list: cohorts[index].returned.enumerated()) { writer, cell in
                        guard let state = state(index, cell.offset) else { return writer.raw("null") }
                        writer.object { writer in
                            writer.member("users", cell.element)
                            writer.member("state", state.rawValue)
                        }
                    }
                }
            }
            writer.member("average", list: average) { writer, cell in
                writer.object { writer in
                    writer.member("users", cell.users)
                    writer.member("size", cell.size)
                }
            }
            writer.member("unassigned", unassigned)
        }
        return writer.bytes
    }

    /// A line is a cell that has begun.
    func csv() -> [UInt8] {
        CSV.text(
            [["cohort", "size", "unit", "users", "state"]]
                + cohorts.enumerated().flatMap { index, cohort in
                    cohort.returned.enumerated().compactMap { cell, users in
                        state(index, cell).map { [cohort.day.description, "\(cohort.size)", "\(cell)", "\(users)", $0.rawValue] }
                    }
                })
    }
}

extension JSONWriter {
    /// Four decimal places; null without a whole.
    fileprivate mutating func member(_ name: StaticString, fraction: (part: Int64, whole: Int64)?) {
        member(name)
        guard let fraction, fraction.whole > 0 else { return raw("null") }
        let tenThousandths = (fraction.part * 20_000 + fraction.whole) / (2 * fraction.whole)
        guard tenThousandths < 10_000 else { return integer(1) }
        let digits = "\(tenThousandths + 10_000)".dropFirst()
        raw(Array("0.\(digits)".utf8))
    }
}
