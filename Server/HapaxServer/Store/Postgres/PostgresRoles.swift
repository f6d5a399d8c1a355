/// Who may do what in the database. The role that serves can add events and never take one away; the admin role owns the tables.
enum PostgresRoles {
    /// What the serving role needs, and no more.
    static func grant(_ connection: PostgresConnection, to role: String) throws(StoreError) {
        try translating { () throws(PostgresError) in
            guard try connection.query("SELECT current_user").first?[0] != role else { return }
            let name = try connection.query("SELECT quote_ident($1)", [role]).first?[0] ?? role
            let schema = try connection.query("SELECT quote_ident(current_schema())").first?[0] ?? "public"
            try connection.execute(
                """
                GRANT USAGE ON SCHEMA \(schema) TO \(name);
                GRANT SELECT, INSERT ON events, projects, audit TO \(name);
                GRANT SELECT, INSERT, UPDATE ON installs TO \(name);
                GRANT SELECT, INSERT, UPDATE, DELETE ON report_zones, report_bounds, report_progress, report_days, report_events, report_users,
                  report_returns, report_late, report_late_progress, derived_ids, sender_days TO \(name);
                GRANT SELECT ON daily_report, events_with_late, kept_events, erasures TO \(name);
                GRANT SELECT, UPDATE (last_used) ON keys TO \(name);
                GRANT SELECT ON \(try PostgresPartitions.names(connection).sorted().joined(separator: ", ")) TO \(name);
                GRANT SELECT ON retention, backups, blocked_users, removals, clock, hapax_migrations TO \(name);
                """)
        }
    }

    /// Whether this session's role owns `events`, and so may make months.
    static func mayChange(_ connection: PostgresConnection) throws(PostgresError) -> Bool {
        try connection.query(
            "SELECT pg_has_role(current_user, relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass('events')"
        ).first?[0] == "t"
    }

    /// Whether this role may make tables.
    static func mayCreate(_ connection: PostgresConnection) throws(PostgresError) -> Bool {
        try connection.query("SELECT has_schema_privilege(current_schema(), 'CREATE')").first?[0] == "t"
    }

    /// Whether this role may make temporary tables, as removing old months does.
    static func mayMakeTemporary(_ connection: PostgresConnection) throws(PostgresError) -> Bool {
        try connection.query("SELECT has_database_privilege(current_database(), 'TEMPORARY')").first?[0] == "t"
    }
}
